"""Rewrites of a graph that depend on the target."""
