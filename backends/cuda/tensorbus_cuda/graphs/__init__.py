"""Compiled programs recorded and replayed as CUDA graphs.

``cuda_graph.GraphRunner`` records a program at its second run, and launches the graph from then on.
In order: ``graph_driver``, ``graph_dependencies``, ``steady_inputs``, ``run_numbers``,
``cuda_graph``.
"""
