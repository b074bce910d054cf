"""The process: environment, locks, lazy imports, garbage collector, disk cache, user's stack frame.

In order: ``env``, ``items``, ``lazy_import``, ``late_binding``, ``weak_tables``, ``fork_safe_locks``,
``rank_of_thread``, ``exit_handlers``, ``context_decorator``, ``garbage_collection``, ``progress_line``,
``former_names``, ``user_frame``, ``private_folders``, ``cache_key``, ``shared_library``, ``build_folder``,
``disk_cache``.
"""
