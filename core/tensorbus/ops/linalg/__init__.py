"""Linear algebra beyond the matrix product: factorizations, what is made of them, norms.

In order: ``matrix``, ``solve``, ``lu``, ``orthogonal``, ``eigen``, ``determinant``, ``least_squares``,
``powers``, ``norms``.
"""
