"""Attention and its gradient by cuDNN."""
