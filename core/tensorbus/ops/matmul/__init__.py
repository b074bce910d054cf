"""Ops that multiply matrices, and what is written as such products.

In order: ``matmul``, ``matmul_epilogue``, ``scaled_matmul``, ``linear``, ``einsum``, ``distance``,
``added_products``.
"""
