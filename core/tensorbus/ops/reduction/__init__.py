"""Ops that combine the elements along axes.

In order: ``reduction``, ``scan``, ``softmax``, ``segment``, ``trapezoid``, ``nan_reductions``.
"""
