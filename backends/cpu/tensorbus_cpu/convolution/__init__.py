"""Convolutions by implicit matrix products in tiles, and by Winograd's transforms.

In order: ``kernels_convolution``, ``implicit_gemm``, ``winograd``, ``tiled_functions``.
"""
