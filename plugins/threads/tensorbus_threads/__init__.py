"""Connects ranks that are threads of one process: the last to come computes for all.

In order: ``meeting``, ``communicator``, ``extension``.
"""
