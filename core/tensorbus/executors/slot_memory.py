"""Memory for the slots of a program's runs: new each time, or kept from run to run.

Asking a device's pool for each temporary takes about as long as queueing a kernel. What is queued runs in
order, so that a temporary may lie where one of the run before lay, and where one lay that is not read again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

MAX_KEPT_BYTES: Final = 1 << 26
"""Bytes that one program keeps at most."""
SPARE: Final = 4
"""What is kept has room for sizes that are larger by one part in so many."""


class FreshMemory:
    """New buffers for one run: ``of(slot)``; ``nbytes`` are those of each slot."""

    __slots__ = ("_allocate", "_nbytes")

    def __init__(self, allocate: Callable[[int], Any], nbytes: Sequence[int]) -> None:
        self._allocate, self._nbytes = allocate, nbytes

    def of(self, slot: int) -> Any:
        """Return a new buffer for a slot; None for one without elements."""
        nbytes = self._nbytes[slot]
        return self._allocate(nbytes) if nbytes else None

    def let_go(self, blocks: Iterable[Any]) -> None:
        """Do nothing: none of them is kept."""


class KeptMemory:
    """Buffers that are kept for one program: those of ``rooms``, the numbers of temporaries' places by slot.

    ``is_own(buffer)`` says whether what is queued next may write over a buffer that nobody else refers to.
    ``lock`` is held while a run is queued.
    """

    def __init__(
        self, allocate: Callable[[int], Any], is_own: Callable[[Any], bool], rooms: Mapping[int, int]
    ) -> None:
        self._allocate, self._is_own, self._rooms = allocate, is_own, dict(rooms)
        self._buffers: list[Any] = [None] * (max(rooms.values(), default=-1) + 1)
        self._sizes = [0] * len(self._buffers)
        self._total = 0
        self._nbytes: Sequence[int] = ()
        self.lock = threading.Lock()

    def begin(self, nbytes: Sequence[int]) -> None:
        """Serve a run whose slots have so many bytes; whoever calls holds the lock."""
        first = next((block for block in self._buffers if block is not None), None)
        if first is not None and not self._is_own(first):  # another stream's turn
            self.clear()
        self._nbytes = nbytes

    def of(self, slot: int) -> Any:
        """Return the buffer of a slot: the kept one, if it has one; None for a slot without elements."""
        nbytes = self._nbytes[slot]
        if not nbytes:
            return None
        room = self._rooms.get(slot)
        if room is None:
            return self._allocate(nbytes)
        if nbytes <= self._sizes[room]:
            return self._buffers[room]
        whole = nbytes + nbytes // SPARE
        self._total -= self._sizes[room]
        self._sizes[room], self._buffers[room] = 0, None
        if self._total + whole > MAX_KEPT_BYTES:
            return self._allocate(nbytes)
        block = self._allocate(whole)
        self._buffers[room], self._sizes[room] = block, whole
        self._total += whole
        return block

    def let_go(self, blocks: Iterable[Any]) -> None:
        """Keep none of these buffers any longer: a value that outlives the run lies there."""
        gone = {id(block) for block in blocks}
        for room, block in enumerate(self._buffers):
            if block is not None and id(block) in gone:
                self._total -= self._sizes[room]
                self._buffers[room], self._sizes[room] = None, 0

    def clear(self) -> None:
        """Keep nothing."""
        self._buffers = [None] * len(self._buffers)
        self._sizes = [0] * len(self._buffers)
        self._total = 0


def rooms_of(
    steps: Iterable[tuple[Collection[int], Collection[int]]], sizes: Mapping[int, str],
    outputs: Collection[int],
) -> dict[int, int]:  # fmt: skip
    """Return a place for each temporary: of one size, one that is not read again lends its place.

    ``steps`` are the slots that each step writes and those that nobody reads behind it; ``sizes`` the bytes
    of each slot, as expressions of the lengths.

    >>> rooms_of([({3}, ()), ({4}, {3}), ({5}, {4}), ({6}, {5})], dict.fromkeys((3, 4, 5, 6), "4*s0"), {6})
    {3: 0, 4: 1, 5: 0}
    """
    rooms: dict[int, int] = {}
    free: dict[str, list[int]] = {}
    count = 0
    for written, ended in steps:
        for slot in sorted(written):
            if slot in sizes and slot not in rooms and slot not in outputs:
                known = free.get(sizes[slot])
                if known:
                    rooms[slot] = known.pop()
                else:
                    rooms[slot], count = count, count + 1
        for slot in sorted(ended):
            if slot in rooms:
                free.setdefault(sizes[slot], []).append(rooms[slot])
    return rooms
