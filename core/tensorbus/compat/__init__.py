"""PyTorch's names and habits: second names, and what to write instead of those that are missing.

In order: ``torch_names``, ``torch_modules``, ``unpacking``.
"""
