"""Ops that make tensors from nothing: filled ones and random bits.

In order: ``creation``, ``random``, ``index_grids``.
"""
