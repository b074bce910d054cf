"""Attention and its gradient by cuDNN.

In order: ``kernels_attention``, ``attention_mask``.
"""
