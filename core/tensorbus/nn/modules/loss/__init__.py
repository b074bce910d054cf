"""Losses as modules, and the distances that some are of.

Predictions and targets come in, a number leaves, or one for each example. In order: ``loss``, ``distance``,
``adaptive_softmax``, ``linear_cross_entropy``.
"""
