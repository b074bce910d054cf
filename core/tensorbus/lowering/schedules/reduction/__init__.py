"""Schedules of reductions over rows, columns and all elements."""
