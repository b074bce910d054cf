"""Matrix products: BLAS, MKL, packed panels for AMX and AVX-512.

In order: ``kernels_matmul``, ``blas_call``, ``mkl_gemm``, ``packed_gemm``.
"""
