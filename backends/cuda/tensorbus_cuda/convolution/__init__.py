"""Convolution and its gradients by cuDNN."""
