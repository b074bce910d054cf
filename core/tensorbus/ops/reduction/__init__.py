"""Ops that combine the elements along axes: reductions, scans, softmax, segments."""
