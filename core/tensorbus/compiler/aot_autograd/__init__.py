"""The backward program of a captured function.

A forward trace comes in; the joint graph is cut by what is cheapest to keep, and a forward and a backward
program leave. In order: ``saved_inputs``, ``joint_graph``, ``min_cut_partitioner``.
"""
