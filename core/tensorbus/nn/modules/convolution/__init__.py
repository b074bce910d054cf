"""Layers that multiply windows by weights, and the transposed ones.

Signals or images come in, with channels; other channels leave. In order: ``windows``, ``conv``,
``conv_transpose``.
"""
