"""Schedules of elementwise kernels.

In order: ``pointwise``, ``elementwise_map``, ``padded_rows``, ``grid_stride``, ``transpose_tile``,
``vectorize``, ``vector_access``, ``stores``.
"""
