"""One process as a rank of many that are not there: shapes, memory and schedule without communication.

In order: ``schedule``, ``store``, ``communicator``, ``extension``.
"""
