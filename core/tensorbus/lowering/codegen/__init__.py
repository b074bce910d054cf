"""From loop IR to source.

A kernel in loop IR and a dialect come in, text leaves. One renderer serves all languages. In order:
``dialect``, ``render``, ``loop_invariant_motion``, ``c_expressions``, ``c_math``, ``c_complex``,
``c_float8``, ``numbers_in_memory``.
"""
