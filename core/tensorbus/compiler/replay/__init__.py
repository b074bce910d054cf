"""The Python of a cache entry.

Guards, a program and mutations come in; a function leaves that checks, runs and applies them. In order:
``eager_comparison``, ``cache_entry``, ``codegen``, ``input_relaxation``, ``late_errors``, ``noted_writes``,
``output_codegen``, ``read_values``, ``shared_parts``.
"""
