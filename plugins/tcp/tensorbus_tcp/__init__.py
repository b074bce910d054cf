"""Connects ranks that are processes: the store that one of them serves, and collectives over sockets.

In order: ``frames``, ``table``, ``server``, ``client``, ``peers``, ``communicator``, ``extension``.
"""
