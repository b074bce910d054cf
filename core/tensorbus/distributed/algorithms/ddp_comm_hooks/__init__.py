"""Hooks that ``replicate`` averages gradients by, in place of its own all-reduce: ``default_hooks``."""
