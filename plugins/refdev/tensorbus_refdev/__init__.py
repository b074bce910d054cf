"""A whole device in pure Python, to be copied by authors of devices.

In order: ``extension``, ``device``, ``memory``, ``kernels``.
"""
