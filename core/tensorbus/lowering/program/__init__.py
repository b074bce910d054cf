"""From scheduled kernels to a program.

Kernels and library calls come in; their order, memory and launches leave. In order: ``lower``,
``emit``, ``step_order``, ``collective_order``, ``early_free``, ``inplace_reuse``, ``memory_planner``,
``last_block_epilogue``, ``program``, ``verify``.
"""
