"""The kit for communicators: whether one does what ``tensorbus.backend_api.Communicator`` says.

Ranks are started (``launch``), each runs a program of ``collectives`` or ``faults`` (``rank``), and what
they report is put together (``command``). In order: ``setting``, ``progress``, ``values``,
``collectives``, ``mismatches``, ``faults``, ``rank``, ``launch``, ``command``.
"""
