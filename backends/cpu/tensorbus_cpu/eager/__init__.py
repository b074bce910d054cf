"""Eager kernels that are faster than NumPy's: generated ones, and those of csource/library.c."""
