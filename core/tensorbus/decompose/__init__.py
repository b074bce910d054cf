"""Runs a decomposition on tracing values, and replaces composites in a graph.

An op or a graph comes in, a graph of ops that the device has leaves. In order: ``tracer``, ``update_bodies``,
``decompose``.
"""
