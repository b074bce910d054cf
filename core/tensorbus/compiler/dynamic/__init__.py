"""Retraces with symbols: sizes, numbers and state that differ between calls.

A first trace comes in; one with symbols in the places that vary leaves, or nothing where the two do not
agree. In order: ``mark_dynamic``, ``varying_inputs``, ``rebuilt_tuples``, ``retrace_state``,
``retrace_shapes``.
"""
