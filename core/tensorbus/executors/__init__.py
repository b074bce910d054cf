"""Execution of a captured graph: kernel by kernel, or as generated source.

A graph comes in; an executable leaves, which is called with buffers. In order: ``legalize``,
``library_call``, ``kernel_interpreter``, ``source_lowering``, ``replay_interface``.
"""
