"""A ring of what a rank communicated last: what a hang or a mismatch is explained by."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

_LENGTH: Final = 2048


@dataclass(slots=True)
class Record:
    """One collective of one group on this rank.

    ``sequence`` counts the calls of the group, so that ranks' records can be laid side by side; ``started``
    and ``ended`` are seconds of ``time.monotonic``; ``failure`` is "" unless it raised.
    """

    group: str
    sequence: int
    operation: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    device: str
    communicator: str = ""
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    failure: str = ""

    @property
    def state(self) -> str:
        """``"running"``, ``"done"`` or ``"failed"``."""
        return "failed" if self.failure else "running" if self.ended is None else "done"

    def __str__(self) -> str:
        shapes = ", ".join(f"{self.dtype}{[*shape]}" for shape in self.shapes)
        return f"{self.operation}({shapes}), call {self.sequence} of group {self.group!r}"


class Records:
    """The last records of a rank, oldest first."""

    def __init__(self) -> None:
        self._ring: deque[Record] = deque(maxlen=_LENGTH)
        self._counts: dict[str, itertools.count[int]] = {}
        self._lock = threading.Lock()

    def start(
        self, group: str, operation: str, shapes: tuple[tuple[int, ...], ...], dtype: str, device: str
    ) -> Record:
        """Add a record of a call that begins now."""
        with self._lock:
            sequence = next(self._counts.setdefault(group, itertools.count(1)))
            record = Record(group, sequence, operation, shapes, dtype, device)
            self._ring.append(record)
        return record

    def last(self) -> list[Record]:
        """Return what the ring holds."""
        with self._lock:
            return list(self._ring)
