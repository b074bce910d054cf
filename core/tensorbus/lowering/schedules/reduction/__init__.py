"""Schedules of reductions over rows, columns and all elements.

In order: ``reducer``, ``blocked_sum``, ``reduction``, ``reduction_loop``, ``multi_reduction``,
``column_reduction_cpu``, ``column_reduction_gpu``.
"""
