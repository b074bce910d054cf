"""Launches, and programs recorded and replayed as CUDA graphs.

In order: ``launch``, ``graph_dependencies``, ``steady_inputs``, ``cuda_graph``.
"""
