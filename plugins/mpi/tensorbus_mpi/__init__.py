"""Connects ranks that are processes of an MPI program, through the host's memory.

In order: ``program``, ``requests``, ``outbox``, ``communicator``, ``store``, ``extension``.
"""
