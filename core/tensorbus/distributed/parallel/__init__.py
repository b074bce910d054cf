"""Modules that ranks train together.

In order: ``module_class``, ``labels``, ``gradient_reducer``, ``replicate``, ``parameter_group``,
``fully_shard``, ``styles``, ``parallelize``, ``vocabulary_loss``.
"""
