"""One arena for all temporaries of a program: those that are never alive together share memory.

Devices that run a program by one call ask for it; others give memory back after each step, by
``Program.frees``. Results that are written late, as the gradients of a training step are, lend theirs until
then.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from .program import Program, slots_of

ALIGNMENT: Final = 64
_ENDLESS: Final = 1 << 62
_EMPTY: Final[Mapping[int, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """The offset of each temporary slot, in bytes, and the bytes that all of them take.

    A slot among ``hosts`` begins so far into the result that is named there, not into the arena.
    """

    offsets: Mapping[int, int]
    total: int
    hosts: Mapping[int, int]


class _Region:
    """Bytes that slots share, each for some steps: ``limit`` of them, until step ``end``."""

    def __init__(self, limit: int, end: int) -> None:
        self.limit, self.end, self.total = limit, end, 0
        self._placed: list[tuple[int, int, int, int]] = []

    def place(self, size: int, first: int, last: int) -> int | None:
        """Return where a slot comes to lie, in the smallest gap that is free meanwhile; None: nowhere."""
        best: tuple[int, int] | None = None
        at = 0
        for start, stop, begins, ends in self._placed:
            if begins <= last and first <= ends:
                if start - at >= size and (best is None or start - at < best[0]):
                    best = start - at, at
                if stop > at:
                    at = stop
        lowest = best[1] if best is not None else at
        if lowest + size > self.limit:
            return None
        insort(self._placed, (lowest, lowest + size, first, last))
        self.total = max(self.total, lowest + size)
        return lowest


def plan_memory(
    program: Program, apart: Collection[int] = (), hosts: Collection[int] = (),
    until: Mapping[int, int] = _EMPTY,
) -> Arena:  # fmt: skip
    """Return an arena for the slots that no output lies in; each is alive from its first use to its last.

    Slots in ``apart`` have memory of their own. Those in ``hosts`` are results whose memory is there from the
    beginning: before a result is first written, large temporaries may lie in it. The largest come first.
    ``until`` says of slots that are alive longer than the order of the steps tells until which step.
    """
    apart_slots, lent = {x.slot for x in program.outputs} | {*apart}, {*hosts}
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    filled: dict[int, int] = {}
    for k, item in enumerate(program.steps):
        read, written = slots_of(item)
        for slot in sorted(written & lent):
            filled.setdefault(slot, k)
        for slot in sorted(read | written):
            if slot in program.sizes and slot not in apart_slots:
                born.setdefault(slot, k)
                dies[slot] = max(k, until.get(slot, k))
    bytes_of = {
        slot: -(-program.sizes[slot][0] * program.sizes[slot][1].itemsize // ALIGNMENT) * ALIGNMENT
        for slot in born
    }
    large = program.heuristics.lend_min_bytes
    offsets: dict[int, int] = {}
    hosted: dict[int, int] = {}
    rooms: dict[int, _Region] = {}
    for host, end in sorted(filled.items(), key=lambda x: x[1]):
        size, dtype = program.sizes[host]
        if size * dtype.itemsize >= large:
            rooms[host] = _Region(size * dtype.itemsize, end)
    arena = _Region(_ENDLESS, len(program.steps))
    for slot in sorted(born, key=lambda s: (-bytes_of[s], born[s], s)):
        size, first, last = bytes_of[slot], born[slot], dies[slot]
        for host, room in rooms.items() if size >= large else ():
            at = room.place(size, first, last) if last < room.end else None
            if at is not None:
                offsets[slot], hosted[slot] = at, host
                break
        else:
            at = arena.place(size, first, last)
            assert at is not None
            offsets[slot] = at
    return Arena(offsets=offsets, total=arena.total, hosts=hosted)
