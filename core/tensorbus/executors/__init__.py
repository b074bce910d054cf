"""Execution of a captured graph: kernel by kernel, or as generated source.

A graph comes in; an executable leaves, which is called with buffers. In order: ``ordered_calls``,
``legalize``, ``library_call``, ``kernel_interpreter``, ``replay_interface``, ``overwriting``,
``source_program``, those of plans for many sizes, ``slot_memory``, ``call_template`` and
``program_template``, ``source_lowering``.
"""
