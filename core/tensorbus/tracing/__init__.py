"""Symbolic stand-ins while a program is captured: lazy values, SymInt, SymNumber, the host prologue."""
