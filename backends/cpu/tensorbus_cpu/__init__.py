"""The cpu device of tensorbus: values are NumPy arrays."""
