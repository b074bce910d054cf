"""Groups of ranks that know of each other, and what they do together.

In order: ``records``, ``work``, ``roll_call``, ``world``, ``connection``, ``captured_collectives``,
``host_staging``, ``watch``, ``group``.
"""
