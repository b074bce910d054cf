"""Ops that multiply matrices, and what is written as such products."""
