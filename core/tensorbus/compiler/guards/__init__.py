"""The guards under which a captured program stands for the function.

What a call could reach comes in; the source of a check leaves. ``CompiledFunction.__call__`` runs each cache
entry, a generated function whose first lines, from ``GuardCodegen.emit_head``, check the guards. In order:
``guard``, ``lookups``, ``merged_guards``, ``guard_codegen``.
"""
