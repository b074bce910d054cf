"""Figures, measured: `make bench`."""
