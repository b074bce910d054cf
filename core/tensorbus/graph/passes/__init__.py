"""Rewrites of a graph that hold on every device."""
