"""A ring of what a rank communicated last: what a hang or a mismatch is explained by."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

MESSAGES: Final = ("send", "recv", "batch_isend_irecv")
"""Calls that only some ranks make: they are not counted with the collectives."""
_LENGTH: Final = 2048


@dataclass(slots=True)
class Record:
    """One call of a group on this rank.

    ``sequence`` counts the collectives of the group by one communicator, from 1 on, so that ranks' records
    can be laid side by side; messages have numbers of their own. ``asked`` says what all ranks ask for alike,
    "" for messages. ``started`` and ``ended`` are seconds of ``time.monotonic``; ``failure`` is "" unless it
    raised. ``is_queued``: the call has returned, and the device works on it. ``needs`` are the ranks that
    have to take part; ``thread`` is the number of the one that called. ``count`` is above 1 for a compiled
    program that the device runs as a whole, with so many collectives: ``sequence`` and ``asked`` are those of
    the last. ``needs_one``: one of ``needs`` is enough, as for a message from any rank. ``fingerprint``
    stands for all that has been asked for up to here. ``number`` counts the group's collectives by all
    communicators, from 1 on; it is that of the first, and 0 for messages.
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
    asked: str = ""
    is_queued: bool = False
    needs: tuple[int, ...] = ()
    needs_one: bool = False
    thread: int = field(default_factory=threading.get_ident)
    count: int = 1
    fingerprint: int = 0
    number: int = 0

    @property
    def state(self) -> str:
        """``"running"``, ``"queued"``, ``"done"`` or ``"failed"``."""
        if self.failure:
            return "failed"
        return "done" if self.ended is not None else "queued" if self.is_queued else "running"

    def __str__(self) -> str:
        shapes = ", ".join(f"{self.dtype}{[*shape]}" for shape in self.shapes)
        place = f" on {self.device}" if self.device else ""
        asked = self.asked or f"{self.operation}({shapes})"
        if self.count > 1:
            asked = f"a program with {self.count} collectives, the last of them {asked}"
        return f"{asked}{place}, call {self.sequence} of group {self.group!r}"


class Records:
    """The last records of a rank, oldest first."""

    def __init__(self) -> None:
        self._ring: deque[Record] = deque(maxlen=_LENGTH)
        self._lock = threading.Lock()

    def add(self, record: Record) -> None:
        """Put a record at the end."""
        with self._lock:
            self._ring.append(record)

    def last(self) -> list[Record]:
        """Return what the ring holds."""
        with self._lock:
            return list(self._ring)
