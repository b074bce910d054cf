"""Symbolic stand-ins while a program is captured.

Sizes, numbers and values come in as symbols; what Python asks of them leaves as conditions and as lines of a
host prologue. In order: ``lazy_value``, ``active_modes``, ``active_tracer``, ``mutation_counter``,
``autocast_state``, ``mesh_policy``, ``sym_int``, ``plan_env``, ``sym_number``, ``host_prologue``,
``known_by_identity``.
"""
