"""Rewrites of a graph that depend on the target.

A graph and a target come in, a graph leaves. In order: ``pass_list``, ``matvec_to_reduction``,
``split_reductions``, ``limit_concat_operands``.
"""
