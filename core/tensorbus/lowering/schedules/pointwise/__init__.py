"""Schedules of elementwise kernels: vectors, tiles, loops over the grid, where results are stored."""
