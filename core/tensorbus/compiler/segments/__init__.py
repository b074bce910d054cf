"""A function that breaks, as segments that are captured and the lines between, which Python runs.

The places where captures broke come in; functions in whose place rewritten ones run leave. In order:
``function_source``, ``name_flow``, ``evaluation_order``, ``late_read_calls``, ``shown_numbers``,
``late_reads``, ``shown_statements``, ``late_effects``, ``late_effect_calls``, ``plain_names``, ``split``,
``long_loops``, ``segmentation``.
"""
