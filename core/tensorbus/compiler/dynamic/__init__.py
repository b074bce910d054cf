"""Retracing with symbols: sizes, numbers and state that differ between calls."""
