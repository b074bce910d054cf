"""Schedules of scatters: by atomics, by rows, by rank, by sorted segments."""
