"""Rewrites of a graph that depend on the target.

A graph and a target come in, a graph leaves. In order: ``matvec_to_reduction``, ``split_reductions``.
"""
