"""Runs a function on lazy values.

A call comes in; its ops, its side effects and where the graph breaks leave. In order: ``tracer``,
``op_signatures``, ``side_effect_observer``, ``graph_break``, ``break_sites``, ``symbolic_index``,
``data_dependent_errors``, ``raised_captures``, ``flush``.
"""
