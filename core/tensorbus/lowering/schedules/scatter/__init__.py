"""Schedules of scatters: by owner, by rank, by row, by sorted segments.

In order: ``modes``, ``sizes``, ``scatter``, ``scatter_rank_gpu``, ``scatter_row_gpu``,
``scatter_sorted_gpu``.
"""
