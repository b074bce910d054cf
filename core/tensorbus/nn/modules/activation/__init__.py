"""Activations as modules, so that they can stand in a ``Sequential``.

A tensor comes in, one of the same shape leaves. In order: ``piecewise``, ``smooth``, ``softmax``.
"""
