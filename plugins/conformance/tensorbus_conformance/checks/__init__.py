"""The checks: each takes trials of one op in one dtype on one device and yields what is wrong.

In order: ``expected``, ``kernel``, ``copies``, ``rules``, ``views``, ``derivative``, ``forward``,
``compiled``, and of a device as a whole ``claims``.
"""

from __future__ import annotations
