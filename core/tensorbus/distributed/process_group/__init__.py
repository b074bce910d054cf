"""Who takes part: ranks that know of each other, groups of them, and what they do together.

In order: ``records``, ``work``, ``roll_call``, ``world``, ``connection``, ``captured_collectives``,
``host_staging``, ``watch``, ``group``.
"""
