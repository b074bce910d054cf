"""Ready kernel tables that make a device small.

A library that resembles NumPy, or a dialect and its compiler, comes in; a table from ops to kernels leaves.
In order: ``from_namespace``, ``namespace_linalg``, ``namespace_matrix_exp``, ``namespace_sort_scan``,
``namespace_special``, ``namespace_triangular``, ``strided_views``, ``generated_program``, those of sizes
that change, ``size_function``, ``open_program`` and ``open_shapes``, ``from_dialect``,
``device_error_reports``, ``user_source``, ``via_host``, ``dlpack_capsule``; and a whole device of shapes
alone, ``meta_device``, with ``meta_memory``.
"""
