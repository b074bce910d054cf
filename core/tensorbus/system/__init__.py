"""The process: environment, locks, lazy imports, disk cache, user's stack frame.

In order: ``env``, ``lazy_import``, ``late_binding``, ``fork_safe_locks``, ``context_decorator``,
``former_names``, ``user_frame``, ``disk_cache``.
"""
