"""Tuples with symbolic numbers: they cannot be changed, so others stand in their place in a dry run.

Arguments are such tuples, as states that a call takes and returns, and what lists, dicts and objects hold
that are arguments. A tuple that is the same at each call is a constant.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...tracing.host_prologue import SymbolicSlot
from ..state.object_view import ChildRef
from ..state.reachable import ReachableState, TrackedObject, is_rebuildable


class RebuiltTuples:
    """The tuples of one dry run that hold symbolic numbers, by the ids of those that the caller passed."""

    def __init__(self, reach: ReachableState) -> None:
        self._reach = reach
        self._items: dict[int, list[Any]] = {}
        self._stand_ins: dict[int, Any] = {}
        self._placed: list[tuple[SymbolicSlot, Any]] = []

    def slot(self, tracked: TrackedObject, ref: ChildRef, access: str) -> SymbolicSlot:
        """Return the location of a number in a tuple."""
        items = self._items.setdefault(id(tracked.obj), [*tracked.obj])
        get, put = partial(items.__getitem__, ref.key), partial(items.__setitem__, ref.key)
        return SymbolicSlot(access, get, put, str, lasts=False)

    def stand_in(self, x: Any) -> Any:
        """Return what stands in the place of ``x``: itself, where no symbolic number is in it."""
        if id(x) not in self._reach.objects or not is_rebuildable(self._reach.objects[id(x)]):
            return x
        if id(x) not in self._stand_ins:
            items = [self.stand_in(item) for item in self._items.get(id(x), x)]
            same = all(new is old for new, old in zip(items, x, strict=True))
            new = self._stand_ins[id(x)] = x if same else tuple.__new__(type(x), items)
            if not same:
                self._reach.stand_ins[id(new)] = id(x)
        return self._stand_ins[id(x)]

    def place(self, slot: SymbolicSlot) -> None:
        """Put what stands for the tuple at a location there."""
        stand = self.stand_in(slot.plain)
        if stand is not slot.plain:
            slot.put(stand)
            self._placed.append((slot, stand))

    def put_back(self) -> None:
        """Put the tuples back, except where the run has put something else."""
        for slot, stand in self._placed:
            try:
                now = slot.get()
            except (LookupError, AttributeError, ValueError):
                continue
            if now is stand:
                slot.put(slot.plain)
