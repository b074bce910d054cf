"""Attention and its gradient by cuDNN, and on the tensor cores by functions of scores.

In order: ``kernels_attention``, ``attention_mask``, ``flex_schedule``, ``flex_kernels``, ``flex_functions``.
The kernels' text is ``flex_tiles.cuh``, ``flex_forward.cu``, ``flex_rows.cu``, ``flex_queries.cu`` and
``flex_keys.cu``.
"""
