"""Linear algebra beyond the matrix product: factorizations, what is made of them, and norms."""
