"""The version of the backend API, and the ranges in which plugins say what they were written for."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final

API_VERSION: Final = "0.1"

Release = tuple[int, ...]

_COMPARE: Final[dict[str, Callable[[Release, Release], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}


def satisfies(version: str, wanted: str) -> bool:
    """Return whether ``version`` lies in the range ``wanted``: comparisons with commas between.

    Comparisons are ``>= <= == != > < ~=`` with dotted integers; missing parts are zeros. ``~=1.4`` means
    ``>=1.4,<2``. Raises ``ValueError``, saying what is wrong, for anything else.

    >>> satisfies("0.1", ">=0.1,<1"), satisfies("1.0", ">=0.1,<1"), satisfies("1.5", "~=1.4")
    (True, False, True)
    """
    release = _release(version)
    # Each is evaluated, so that a malformed one is an error whatever those before it say.
    held = [_holds(release, part.strip()) for part in wanted.split(",")]
    return all(held)


def _holds(release: Release, comparison: str) -> bool:
    if comparison.startswith("~="):
        low = comparison[2:].strip()
        parts = _release(low)
        if low.count(".") < 1:
            raise ValueError(f"{comparison!r} needs at least two parts, as in '~=1.4'")
        high = [*[int(part) for part in low.split(".")[:-2]], int(low.split(".")[-2]) + 1]
        return parts <= release < _release(".".join(map(str, high)))
    for sign, compare in _COMPARE.items():
        if comparison.startswith(sign):
            return compare(release, _release(comparison[len(sign) :]))
    raise ValueError(f"{comparison!r} is not a comparison such as '>=0.1' (known: {' '.join(_COMPARE)} ~=)")


def _release(text: str) -> Release:
    parts = text.strip().split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{text.strip()!r} is not a version of dotted integers such as '0.1'")
    numbers = [int(part) for part in parts]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
