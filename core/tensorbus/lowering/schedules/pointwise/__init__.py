"""Schedules of elementwise kernels.

In order: ``pointwise``, ``padded_rows``, ``grid_stride``, ``transpose_tile``, ``vectorize``,
``vector_access``, ``stores``.
"""
