"""The layers, a file for each kind.

A module holds parameters; a tensor comes in, a tensor leaves.
"""
