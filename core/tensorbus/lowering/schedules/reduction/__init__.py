"""Schedules of reductions over rows, columns and all elements.

In order: ``reducer``, ``chunks``, ``blocked_sum``, ``reduction_loop``, ``fold``, ``panel_grid``,
``reduction``, ``multi_reduction``, ``column_reduction_cpu``, ``column_reduction_gpu``.
"""
