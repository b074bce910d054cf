"""Runs a decomposition on tracing values, and replaces composites in a graph."""
