"""From a trace to executables.

A trace and sizes come in; one program for each set of sizes leaves, split by device, tuned where asked. In
order: ``one_time_work``, ``op_trace``, ``device_compile``, ``compiled_program``, ``program_cache``,
``multi_device``, ``autotune``.
"""
