"""Copies between GPUs, page-locked memory, DLPack.

In order: ``peer_copy``, ``pinned_memory``, ``dlpack``.
"""
