"""One arena for all temporaries of a program: those that are never alive together share memory."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .steps import Program, slots_of

ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """Where each temporary slot begins, in bytes, and how many bytes all of them take."""

    offsets: Mapping[int, int]
    total: int


def plan_memory(program: Program) -> Arena:
    """Return an arena for the slots that no output lies in; each is alive from its first use to its last.

    The largest are placed first, each in the smallest gap that is free as long as it lives.
    """
    kept = {x.slot for x in program.outputs}
    born: dict[int, int] = {}
    dies: dict[int, int] = {}
    for k, item in enumerate(program.steps):
        read, written = slots_of(item)
        for slot in sorted(read | written):
            if slot in program.sizes and slot not in kept:
                born.setdefault(slot, k)
                dies[slot] = k
    bytes_of = {
        slot: -(-program.sizes[slot][0] * program.sizes[slot][1].itemsize // ALIGNMENT) * ALIGNMENT
        for slot in born
    }
    offsets: dict[int, int] = {}
    placed: list[tuple[int, int, int, int]] = []
    total = 0
    for slot in sorted(born, key=lambda s: (-bytes_of[s], born[s], s)):
        size, first, last = bytes_of[slot], born[slot], dies[slot]
        best: tuple[int, int] | None = None
        at = 0
        for start, stop in [(x[0], x[1]) for x in placed if x[2] <= last and first <= x[3]]:
            if start - at >= size and (best is None or start - at < best[0]):
                best = start - at, at
            at = max(at, stop)
        offsets[slot] = best[1] if best is not None else at
        insort(placed, (offsets[slot], offsets[slot] + size, first, last))
        total = max(total, offsets[slot] + size)
    return Arena(offsets=offsets, total=total)
