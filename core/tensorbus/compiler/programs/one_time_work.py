"""The count of what a call does once and later calls do not: captures, compiles, measured calls.

A call during which it grows says nothing about how long later ones take. What another thread does counts too:
it takes the interpreter away.
"""

from __future__ import annotations

from itertools import count as _naturals
from typing import Final

_numbers: Final = _naturals(1)
_last: Final = [0]


def note() -> None:
    """Count one more of them."""
    _last[0] = next(_numbers)


def count() -> int:
    """Return a number that grows with each of them.

    >>> before = count()
    >>> note()
    >>> count() > before
    True
    """
    return _last[0]
