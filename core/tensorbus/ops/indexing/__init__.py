"""Ops that read and write at places: keys, tensors of indices, masks.

In order: ``sharding``, ``indexing``, ``gather_scatter``, ``take_along_axis``, ``torch_gather``,
``index_select``, ``nonzero``.
"""
