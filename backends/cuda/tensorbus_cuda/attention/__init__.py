"""Attention and its gradient by cuDNN, and on the tensor cores by functions of scores.

In order: ``kernels_attention``, ``attention_mask``, ``flex_schedule``, ``flex_kernels``, ``flex_functions``,
``flex_wgmma``. The kernels' text is ``flex_forward.cu``, ``flex_rows.cu``, ``flex_queries.cu`` and
``flex_keys.cu``, on what ``flex_tiles.cuh`` has, with products from ``flex_mma.cuh`` or ``flex_wgmma.cuh``.
"""
