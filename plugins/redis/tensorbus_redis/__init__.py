"""The store where ranks meet, on a Redis server.

In order: ``store``, ``extension``.
"""
