"""Programs as data: ops in static single assignment.

Tracers make graphs, ``passes`` rewrite them, lowerings take them. In order: ``ir``, ``verify``,
``fingerprint``.
"""
