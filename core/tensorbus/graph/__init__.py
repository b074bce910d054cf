"""Programs as data: what holds of every graph, and rewrites of it.

Tracers make graphs of ops in static single assignment, ``passes`` rewrite them, lowerings take them. In
order: ``rewrite``, ``pipeline``, ``verify``, ``evaluate``, ``fingerprint``.
"""
