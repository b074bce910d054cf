"""Errors that kernels report asynchronously of their operands: an index that is out of range."""

from __future__ import annotations

from ..errors import IndexingError
from ..system import fork_safe_locks


class Reports:
    """The ops that report, by the number that stands for each in a report. Safe in many threads.

    A report is three integers of 64 bits, zeros before anything was wrong: the op's number in the lower 32
    bits of the first, the index, and the length of its axis.

    >>> reports = Reports()
    >>> reports.code("gather"), reports.code("scatter"), reports.code("gather")
    (1, 2, 1)
    >>> reports.error("npu:0", 2, -7, 3)
    IndexingError('scatter on npu:0: index -7 is out of range for an axis of length 3.')
    """

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._lock = fork_safe_locks.simple()

    def code(self, op: str) -> int:
        """Return the number of an op, from 1."""
        with self._lock:
            return self._codes.setdefault(op, len(self._codes) + 1)

    def error(self, where: str, code: int, index: int, n: int) -> IndexingError:
        """Return the error for a report of a kernel on the unit called ``where``."""
        number = int(code) & 0xFFFFFFFF
        with self._lock:
            op = next((name for name, k in self._codes.items() if k == number), "an op")
        return IndexingError(f"{op} on {where}: index {index} is out of range for an axis of length {n}.")
