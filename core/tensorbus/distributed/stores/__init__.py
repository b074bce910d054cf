"""Stores of keys and values where ranks meet: in memory, in a folder, or by the URL of a plugin's.

In order: ``memory_store``, ``life_locks``, ``file_store``, ``prefix_store``, ``limited_store``, ``urls``.
"""
