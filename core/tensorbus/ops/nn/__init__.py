"""Ops of neural networks: attention, convolution, pooling, normalization, losses.

In order: ``sharding``, ``attention``, ``attention_scores``, ``attention_gradients``, ``score_program``,
``attention_blocks``, ``flex_attention_gradients``, ``flex_attention``, ``convolution``,
``convolution_weight``, ``convolution_transpose``, ``pooling``, ``average_pooling``, ``adaptive_pooling``,
``normalization``, ``batch_norm``, ``interpolate``, ``grid_sample``, ``loss``, ``regression_loss``,
``ctc_loss``.
"""
