"""Layers that pool windows: of a given size, to a given size, at random places.

A tensor comes in, one with fewer elements along its last axes leaves. In order: ``pooling``,
``adaptive_pooling``, ``fractional_max_pool``.
"""
