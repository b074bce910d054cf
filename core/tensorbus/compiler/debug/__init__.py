"""Every stage of a compile as files and a page (``TENSORBUS_DUMP``).

In order: ``trace_page``.
"""
