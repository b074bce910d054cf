"""Captures that end in an error of the function, and are of no use later: when Python runs instead."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

IN_A_ROW: Final = 2
"""The number of such captures in a row after which Python makes calls until one returns."""
IN_ALL: Final = 8
"""The number of such captures after which a call that returns does not lead to the next capture."""
PYTHON_TIMES: Final = 20
"""How many times the seconds of such captures Python's calls then take before there is another one."""


class RaisedCaptures:
    """Counts the captures of one function that ended in an error, and their seconds."""

    def __init__(self) -> None:
        self._in_a_row = self._count = 0
        self._seconds = self._python_seconds = 0.0

    def may_capture(self) -> bool:
        """Return whether the next call is worth a capture."""
        return self._in_a_row < IN_A_ROW or self._python_seconds > PYTHON_TIMES * self._seconds

    def note(self, seconds: float) -> None:
        """Count a capture that ended in an error."""
        self._in_a_row += 1
        self._count += 1
        self._seconds += seconds

    def run(self, function: Callable[[], T]) -> T:
        """Return ``function()``, a call in Python; one that returns makes captures worthwhile again."""
        start = perf_counter()
        try:
            out = function()
        finally:
            self._python_seconds += perf_counter() - start
        if self._count < IN_ALL:
            self._in_a_row = 0
        return out
