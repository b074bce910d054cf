"""A composite, or the vjp of one op, as one generated kernel in eager mode.

A call or a recorded op comes in; a program of the device, made once for a signature, runs it. In order:
``fused_function``, ``planned_program``, ``fused_vjp``.
"""
