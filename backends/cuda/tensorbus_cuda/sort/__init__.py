"""Sorts by CUB and by block radix sort."""
