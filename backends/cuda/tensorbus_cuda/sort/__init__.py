"""Sorts by CUB and by block radix sort.

In order: ``kernels_sort``.
"""
