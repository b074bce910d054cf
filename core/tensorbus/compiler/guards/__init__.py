"""The checks that say whether a captured program still stands for the function.

What a call could reach comes in; the source of a check leaves. In order: ``guard``, ``guard_codegen``.
"""
