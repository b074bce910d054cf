"""Ops that put the same elements elsewhere."""
