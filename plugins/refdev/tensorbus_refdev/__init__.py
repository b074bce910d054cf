"""A whole device in pure Python, for authors to copy: ``extension``, ``device``, ``memory``, ``kernels``."""
