"""Ops that sort, search in what is sorted, and find what is unique.

In order: ``sorting``, ``search``, ``unique``, ``unique_along``.
"""
