"""Rewrites of a graph that hold on every device.

A graph comes in, one that means the same leaves. In order: ``simplify``, ``scatter_patterns``,
``slice_updates_to_concat``, ``fuse_epilogue``.
"""
