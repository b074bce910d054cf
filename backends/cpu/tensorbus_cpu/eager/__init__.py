"""Eager kernels that are faster than NumPy's.

Large calls come in, and run as generated C or as functions of the library in ``csource``. In order:
``candidates``, ``kernels_numpy``, ``cost_model``, ``eager_launch``, ``kernels_native``,
``kernels_elementwise``, ``kernels_indexing``, ``kernels_reduction``, ``row_stable_sum``,
``kernels_composite``, ``kernels_concat_search``, ``kernels_pooling``, ``kernels_random``,
``kernels_partial_sort``, ``inplace_kernels``, ``fused_programs``, ``scatter_add_rows``,
``kernels_attention``.
"""
