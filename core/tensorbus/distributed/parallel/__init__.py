"""Modules that ranks train together.

In order: ``module_class``, ``gradient_reducer``, ``replicate``, ``styles``, ``parallelize``,
``vocabulary_loss``.
"""
