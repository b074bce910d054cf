"""Ops of neural networks: attention, convolution, pooling, normalization, losses."""
