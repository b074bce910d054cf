"""Connects ranks that are processes: the store that one of them serves, and collectives over sockets.

In order: ``frames``, ``requests``, ``table``, ``descriptors``, ``server``, ``client``, ``peers``,
``communicator``, ``extension``.
"""
