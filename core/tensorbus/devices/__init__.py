"""Devices as values, their streams, events, threads and memory.

A name comes in (``"cuda:0"``), a ``Device`` leaves, and the default one where none is named. In order:
``device``, ``stream``, ``stream_capture``, ``threads_and_memory``.
"""
