"""Convolution and its gradients by cuDNN.

In order: ``kernels_convolution``.
"""
