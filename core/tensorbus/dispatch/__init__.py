"""From an op and the types of its operands to the kernel that runs.

An op, devices, dtypes and attributes come in; a plan leaves: kernel, casts, result types. Made once for a
signature, then cached. In order: ``modes``, ``planner``, ``kernel_selection``, ``kernel_preference``,
``host_fallback``, ``result_check``, ``decision_log``, ``default_dtype``.
"""
