"""Modules that ranks train together.

In order: ``module_class``, ``labels``, ``gradient_reducer``, ``replicate``, ``flat_parts``,
``parameter_group``, ``fully_shard``, ``styles``, ``parallelize``, ``vocabulary_loss``.
"""
