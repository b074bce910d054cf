"""The places of steps that communicate: as soon as what they read is there, with other work behind them.

A device may run such a step beside those that follow it, until its result is read. Gradients of weights,
which nothing but the end of a program waits for, then fill the time in which those of activations travel.
What gathers parameters could run at once: it runs ahead of its use by one, so that few are whole together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ...ops.definition import AFTER, table
from ..ir.kernel_task import ERROR_SLOT, LibraryCall
from ..ir.layout import Layout
from .program import Item, slots_of


def overlap_collectives(items: Sequence[Item], replacing: Mapping[int, int]) -> list[Item]:
    """Return the steps in an order in which what communicates has other work beside it.

    The order of the steps that communicate stays, and so does that of the results in ``replacing``, which
    take the place of inputs, and of what reports errors.
    """
    if not any(_communicates(item) for item in items):
        return [*items]
    steps = _Dependencies(items, replacing)
    order = _calls_forward(steps, _others_behind(steps))
    return [items[k] for k in _OnDemand(steps, order).order]


def _communicates(item: Item) -> bool:
    return isinstance(item, LibraryCall) and item.op in table and table[item.op].ordered


def _bits(x: int) -> list[int]:
    """Return the numbers of the bits that are set."""
    return [k for k, bit in enumerate(reversed(f"{x:b}")) if bit == "1"]


class _Dependencies:
    """The steps that wait for each other: sets of steps are integers with a bit for each.

    ``needs`` are all earlier steps that one waits for, ``operands`` those that made what it reads. Those that
    communicate are ``prompt``, or ``lazy``: made from inputs by a few kernels. ``fixed`` steps do not move.
    """

    def __init__(self, items: Sequence[Item], replacing: Mapping[int, int]) -> None:
        self.items = items
        self.ordered = [_communicates(item) for item in items]
        self.needs: list[int] = []
        self.operands: list[int] = []
        self.fixed: list[bool] = []
        self.prompt: list[bool] = []
        self.lazy = 0
        calls = sum(1 << k for k, item in enumerate(items) if isinstance(item, LibraryCall))
        wrote: dict[int, int] = {}
        read: dict[int, int] = {}
        origins: list[int] = []
        for k, item in enumerate(items):
            reads, writes = slots_of(item)
            own = {*writes, *(replacing[s] for s in writes if s in replacing)}
            before = _union(wrote, reads | own) | _union(read, own)
            self.needs.append(_whole(before, self.needs))
            made_by = _union(wrote, reads - _order_alone(item))
            self.operands.append(made_by)
            origins.append(_whole(made_by, origins))
            self.fixed.append(self.ordered[k] or ERROR_SLOT in writes or not writes.isdisjoint(replacing))
            is_lazy = self.ordered[k] and not origins[k] & calls
            self.prompt.append(self.ordered[k] and not is_lazy)
            self.lazy |= (1 << k | origins[k]) if is_lazy else 0
            for s in own:
                wrote[s] = wrote.get(s, 0) | 1 << k
            for s in reads:
                read[s] = read.get(s, 0) | 1 << k


def _union(sets: Mapping[int, int], slots: set[int]) -> int:
    result = 0
    for s in slots:
        result |= sets.get(s, 0)
    return result


def _whole(direct: int, of: Sequence[int]) -> int:
    """Return a set of steps with those ``of`` each of them."""
    result = direct
    for n in _bits(direct):
        result |= of[n]
    return result


def _order_alone(item: Item) -> set[int]:
    """Return the slot that a step which communicates names for its order only."""
    if not isinstance(item, LibraryCall) or not item.attrs.get(AFTER):
        return set()
    *operands, last = [x.slot for x in item.inputs if isinstance(x, Layout)]
    return {last} - {*operands}


def _others_behind(steps: _Dependencies) -> list[int]:
    """Return the steps with what a prompt one does not wait for behind it."""
    order: list[int] = []
    window: list[int] = []
    for k in range(len(steps.items)):
        if not steps.prompt[k]:
            window.append(k)
            continue
        required = steps.needs[k]
        for n in window:
            if steps.fixed[n]:
                required |= steps.needs[n] | 1 << n
        order += [n for n in window if required >> n & 1]
        order.append(k)
        order += [n for n in window if not required >> n & 1]
        window.clear()
    return order + window


def _calls_forward(steps: _Dependencies, order: Sequence[int]) -> list[int]:
    """Return the order with library calls that nothing which communicates waits for behind a prompt step."""
    needed = results = 0
    for k, is_ordered in enumerate(steps.ordered):
        if is_ordered:
            needed |= steps.needs[k]
            results |= 1 << k
    gaps = [k for k in order if steps.prompt[k]]
    place = {k: n for n, k in enumerate(order)}
    behind: dict[int, list[int]] = {}
    moved = 0
    for k in order:
        free = isinstance(steps.items[k], LibraryCall) and not steps.fixed[k] and not needed >> k & 1
        if not free or steps.operands[k] & results or steps.needs[k] & moved:
            continue  # what reads a result would make all behind it wait for that
        ready = max((place[n] for n in _bits(steps.needs[k])), default=-1)
        gap = next((g for g in gaps if place[g] > ready), None)
        if gap is not None and place[gap] < place[k]:
            behind.setdefault(gap, []).append(k)
            moved |= 1 << k
    result: list[int] = []
    for k in order:
        if not moved >> k & 1:
            result.append(k)
        result += behind.get(k, ())
    return result


class _OnDemand:
    """The ``order`` with lazy steps right before their first reader, and the next one that communicates too.

    What is made from nothing but their results comes on demand as well: whole parameters.
    """

    def __init__(self, steps: _Dependencies, order: Sequence[int]) -> None:
        self._steps = steps
        self.order: list[int] = []
        self._done = self._begun = 0
        self._lazy = steps.lazy
        for k, made_by in enumerate(steps.operands):
            is_kernel = not isinstance(steps.items[k], LibraryCall) and not steps.fixed[k]
            if is_kernel and made_by and not made_by & ~steps.lazy:
                self._lazy |= 1 << k
        chain = [k for k in order if steps.ordered[k] and not steps.prompt[k]]
        self._next = dict(pairwise(chain))
        self._wanted: list[int] = []
        for k in order:
            if not self._lazy >> k & 1:
                self._emit(k)
        for k in order:
            self._emit(k)

    def _emit(self, k: int) -> None:
        """Put a step behind what it waits for, unless it is there."""
        if self._done >> k & 1:
            return
        steps = self._steps
        self._begun |= 1 << k
        for n in _bits(steps.needs[k] & ~self._done):
            self._emit(n)
        for n in _bits(steps.operands[k] & steps.lazy):
            if n in self._next:
                self._wanted.append(self._next[n])
        self._ahead()
        self.order.append(k)
        self._done |= 1 << k
        if steps.prompt[k]:
            self._ahead()

    def _ahead(self) -> None:
        """Begin what is wanted next, unless it waits for a step whose turn has not come."""
        wanted, self._wanted = self._wanted, []
        for k in wanted:
            if self._begun >> k & 1:
                continue
            missing = self._steps.needs[k] & ~self._done
            if missing & (self._begun | ~self._lazy):
                self._wanted.append(k)
            else:
                self._emit(k)
