"""Native code: the driver that runs programs, and programs on disk.

Source and a launch list come in; compiled kernels and a table that one C function runs leave. In order:
``compiler_command``, ``cpu_features``, ``compile_queue``, ``simd_helpers``, ``kernel_entry``,
``kernel_batch_compiler``, ``numpy_abi``, ``late_word``, ``bytecode``, ``driver``, ``relocatable_program``,
``plan_words``, ``program_disk_cache``.
"""
