"""Ops on each element by itself: the family, and everything that belongs to it."""
