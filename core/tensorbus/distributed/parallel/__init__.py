"""Modules that ranks train together.

In order: ``module_class``, ``gradient_reducer``, ``replicate``, ``parameter_group``, ``fully_shard``,
``styles``, ``parallelize``, ``vocabulary_loss``.
"""
