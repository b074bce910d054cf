"""A function that breaks, as segments that are captured and the lines between, which Python runs.

The places where captures broke come in; functions in whose place rewritten ones run leave. In order:
``function_source``, ``name_flow``, ``evaluation_order``, ``late_reads``, ``late_effects``, ``split``,
``late_effect_calls``, ``long_loops``, ``segmentation``.
"""
