"""Groups of ranks that know of each other, and what they do together.

In order: ``records``, ``unreturned_calls``, ``future``, ``work``, ``fingerprint_board``,
``fingerprint_relay``, ``comparison``, ``teardown``, ``connection``, ``questions``, ``roll_call``, ``world``,
``lanes``, ``captured_collectives``, ``communicator_contract``, ``host_staging``, ``selection``, ``watch``,
``agreements``, ``group``, ``membership``, ``subgroups``, ``monitored_barrier``.
"""
