"""References: for each op its function in NumPy, mpmath or Python, and how far off a device may be.

In order: ``reference``, then a module a kind of ops: ``elementwise``, ``special``, ``reductions``,
``movement``, ``ordering``, ``linalg``, ``models``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from .reference import Reference as Reference


@cache
def references() -> Mapping[str, Reference]:
    """Return the reference of each op that has one; others are held to their decomposition in float64."""
    from . import elementwise, linalg, models, movement, ordering, reductions, special

    families = (elementwise, special, movement, reductions, ordering, linalg, models)
    return {name: reference for family in families for name, reference in family.REFERENCES.items()}
