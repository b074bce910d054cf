"""Matrix products by cuBLASLt, with epilogues, scales and operands of 8 bits.

In order: ``kernels_matmul``, ``matrix_layout``, ``algorithm_cache``, ``cublaslt``,
``kernels_matmul_epilogue``, ``kernels_matmul_8bit``, ``kernels_scaled_matmul``.
"""
