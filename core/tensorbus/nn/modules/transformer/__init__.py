"""Attention of several heads, and encoders and decoders of it.

Sequences of vectors come in, sequences of the same length leave. In order: ``attention``, ``packed_batch``,
``transformer_layer``, ``transformer``.
"""
