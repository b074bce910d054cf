"""Schedules of prefix sums.

In order: ``scan``, ``scan_gpu``.
"""
