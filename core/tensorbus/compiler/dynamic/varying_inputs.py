"""Numbers that vary from call to call: their locations, and which of them can be symbolic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...tracing.host_prologue import ARGUMENT, FEW_VALUES, HostPrologue
from ..replay.cache_entry import CacheEntry
from ..state.reachable import NUMBER_TYPES, ReachableState

MAX_TRIED_ALONE: Final = 8
"""The number of new locations up to which each is tried alone when a dry run fails with all."""


@dataclass(slots=True, eq=False)
class VaryingInputs:
    """The numbers that vary from call to call: at ``known`` locations, and among the ``arguments``.

    ``rates``: those that prologues read vary too. ``outside``: locations whose numbers others than the
    function have changed since a capture, and which have not been symbolic yet. ``small`` are locations of
    integers too small to be symbolic sizes: their failures say nothing of larger ones. Neither do those at
    ``special`` locations, where Python decided by the very value that was there, as nothing is padded where a
    text fills its batch. ``misses_by_prologue`` counts the calls in which a condition of the prologue failed,
    not a guard.
    """

    known: dict[tuple[int | str, Any], Any] = field(default_factory=dict)
    rates: bool = False
    misses_by_prologue: int = 0
    arguments: set[int | str] = field(default_factory=set)
    outside: set[tuple[int | str, Any]] = field(default_factory=set)
    small: set[tuple[int | str, Any]] = field(default_factory=set)
    special: set[tuple[int | str, Any]] = field(default_factory=set)
    _special_values: Counter[tuple[int | str, Any]] = field(default_factory=Counter)
    _last: dict[int | str, Any] = field(default_factory=dict)
    _fixed: set[Any] = field(default_factory=set)

    def varying_arguments(self, args: Sequence[Any], kwargs: Mapping[Any, Any]) -> set[int | str]:
        """Return which arguments, by position or name, are numbers that have differed between captures."""
        arguments: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
        for key, x in arguments.items():
            last = self._last.setdefault(key, x) if type(x) in NUMBER_TYPES else x
            if type(last) is type(x) and last is not x and repr(last) != repr(x) and key not in self._fixed:
                self.arguments.add(key)
        return {key for key in self.arguments if type(arguments.get(key)) in NUMBER_TYPES}

    def note_changed(self, locations: set[tuple[int | str, Any]]) -> None:
        """Note locations whose numbers others have changed."""
        self.outside |= locations - self._fixed - self.known.keys()

    def most_general_trace(
        self, attempt: Callable[[], tuple[CacheEntry, bool] | None], reach: ReachableState,
        varying: set[int | str], *, counts: bool,
    ) -> tuple[CacheEntry, bool] | None:  # fmt: skip
        """Return the result of ``attempt`` with as many of the new numbers symbolic as possible.

        Python may need only one of them: when it fails with all, it is repeated with one more at a time.
        ``varying`` are the varying arguments. ``counts``: the function itself changes numbers.
        """
        self.special = set()
        best = attempt()
        if best is not None:
            return best
        self._special_values.update(self.special)
        small = self.small | {at for at in self.special if self._special_values[at] <= FEW_VALUES}
        old = {key for key in varying if (ARGUMENT, key) in self.known}
        new = [*((ARGUMENT, key) for key in varying - old), *self.outside]
        self.arguments -= varying - old
        self.outside = set()
        more = False
        for place in [*new] if 1 < len(new) <= MAX_TRIED_ALONE else ():
            home: set[Any] = self.arguments if place[0] == ARGUMENT else self.outside
            key: Any = place[1] if place[0] == ARGUMENT else place
            home.add(key)
            extended = attempt()
            if extended is None:
                home.remove(key)
            else:
                best, more = extended, more or extended[1]
                new.remove(place)
        self._fixed.update(place[1] if place[0] == ARGUMENT else place for place in {*new} - small)
        if best is None and new and (old or counts or self.may_be_read_by(reach)):
            best = attempt()
        if best is None:
            old = {key for key in old if (ARGUMENT, key) not in small}
            self._fixed |= old
            self.arguments -= old
            return None
        return best[0], more or best[1]

    def retrace_order(self) -> tuple[bool, bool]:
        """Return whether integers become numbers first, or sizes, which can be guarded by ranges."""
        return (False, True) if self.misses_by_prologue < FEW_VALUES else (True, False)

    def may_be_read_by(self, reach: ReachableState) -> bool:
        """Return whether code that reaches this state may read them."""
        scopes = {id(g.scope) for g in reach.globals}
        exprs = (
            {s.expr for s in reach.objects.values()}
            if any(type(k) is str for k, _ in self.locations())
            else ()
        )
        return any(key in reach.objects or key in scopes or key in exprs for key, _ in self.locations())

    def locations(self) -> set[tuple[int | str, Any]]:
        """Return all locations that are to be symbolic."""
        return {*self.known, *self.outside}

    def add(self, prologue: HostPrologue, rates: bool) -> bool:
        """Add the symbolic slots of a prologue; return whether any of them is new."""
        before = len(self.known), self.rates
        # a slot's setter keeps its owner alive
        self.known.update({key: slot.put for key, slot in prologue.slots.items() if slot.lasts})
        self.known.update({key: None for key in self.outside if type(key[0]) is str})
        self.outside = set()
        self.rates = self.rates or rates
        return before != (len(self.known), self.rates)
