"""Linear algebra beyond the matrix product: factorizations, ops that use them, norms.

In order: ``matrix``, ``solve``, ``lu``, ``orthogonal``, ``eigen``, ``determinant``, ``least_squares``,
``powers``, ``norms``.
"""
