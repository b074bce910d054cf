"""Connects ranks that are processes with an NVIDIA GPU each, by NCCL.

In order: ``session``, ``arrivals``, ``communicator``, ``extension``.
"""
