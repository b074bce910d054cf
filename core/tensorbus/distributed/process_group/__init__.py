"""Groups of ranks that know of each other, and what they do together.

In order: ``records``, ``work``, ``connection``, ``roll_call``, ``world``, ``lanes``, ``selection``,
``captured_collectives``, ``host_staging``, ``watch``, ``group``, ``subgroups``, ``monitored_barrier``.
"""
