"""The command line ``tensorbus``.

A command's arguments come in, a table or JSON and an exit code leave. Nothing else in core imports it. In
order: ``app``, ``plugin_process``, ``plugin_report``, ``devices``, ``doctor``, ``cache``, ``conformance``,
``conformance_reports``, ``coverage``, ``plan``, ``plan_models``, ``spinner``.
"""
