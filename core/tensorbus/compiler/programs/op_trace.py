"""What a captured function did on one device: its ops in single-assignment form, as they came.

Equal ops of equal operands are one entry, which is found by its key; so the list of keys is also the name of
the program, under which its executable is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import prod
from sys import getrefcount
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ...backend_interface.graph import Graph, Node
from ...devices.device import Device
from ...ops.definition import Spec
from ...tracing.lazy_value import LazyValue
from ...tracing.sym_int import is_open, substitute, texts

Key = tuple[Any, ...]


class Entry(NamedTuple):
    """One value: ``op`` of the entries ``operands``. ``key`` is all else that it depends on, hashable.

    ``again`` numbers what is computed once more in a backward pass, to save memory.
    """

    op: str
    operands: tuple[int, ...]
    attrs: Mapping[str, Any]
    spec: Spec
    key: Key
    again: int = 0


@dataclass(frozen=True, slots=True)
class Transfer:
    """An input that is brought from another device: the value at ``place`` of the recording there."""

    device: Device
    place: int


@dataclass(slots=True, eq=False)
class Feed:
    """Where the value of an input comes from: a tensor, a number or a name of the script, a ``Transfer``."""

    source: Any
    value: Any


class Recording:
    """Entries in order. Inputs are entries too; ``inputs`` lists them, ``feeds`` says where values come from.

    ``pendings`` are the values that stand for results. ``twins`` are entries that compute what others do for
    numbers that move, by places; those ``beside`` them are there for them only. ``apart`` says, by place,
    which operands of an op that has a history have none. ``symbols`` are those of the lengths left open.
    """

    def __init__(self, device: Device, symbols: Mapping[str, str]) -> None:
        self.device, self.symbols = device, symbols
        self.entries: list[Entry] = []
        self.inputs: list[int] = []
        self.pendings: list[LazyValue] = []
        self.feeds: list[Feed] = []
        self.again = 0
        self.twins: dict[int, int] = {}
        self.beside: set[int] = set()
        self.apart: dict[int, tuple[int, ...]] = {}
        self._known: dict[tuple[Key, tuple[int, ...], int], int] = {}
        self._open: list[bool] = []

    @property
    def is_open(self) -> bool:
        """Whether anything depends on lengths that are left open."""
        return bool(self.symbols) and any(self._opened())

    def _opened(self) -> list[bool]:
        """Return of each entry whether it depends on open lengths."""
        for e in self.entries[len(self._open) :]:
            self._open.append(is_open(e.spec.shape) or is_open(dict(e.attrs)))
        return self._open

    def elements(self, sizes: Mapping[str, int] = MappingProxyType({})) -> int:
        """Return how many elements all values have together, for these sizes."""
        return sum(prod(e.spec.shape) for e in self._closed(range(len(self.entries)), sizes))

    def alone(self) -> Recording:
        """Return what was recorded without the values it was recorded with, which it would keep alive."""
        made = copy(self)
        made.inputs, made.feeds, made.pendings = [*self.inputs], [], []
        return made

    def add(self, op: str, operands: tuple[int, ...], attrs: Mapping[str, Any], spec: Spec, key: Key) -> int:
        """Return the place of an op's result: a new one, or that of the same op recorded before."""
        known = self._known.get((key, operands, self.again))
        if known is not None:
            return known
        place = len(self.entries)
        self.entries.append(Entry(op, operands, attrs, spec, key, self.again))
        self._known[key, operands, self.again] = place
        return place

    def tracked(self, place: int, apart: tuple[int, ...]) -> int:
        """Return the place of an op that has a history, but none of the operands ``apart``.

        It is the same op where these are others: its values are equal, and its derivative is not.
        """
        if self.apart.setdefault(place, apart) == apart:
            return place
        e = self.entries[place]
        other = self.add(e.op, e.operands, e.attrs, e.spec, (*e.key, apart))
        self.apart[other] = apart
        return other

    def input(self, spec: Spec, source: Any, value: Any, *, scalar: bool = False) -> int:
        """Return the place of a new input; ``scalar``: a Python number."""
        self.feeds.append(Feed(source, value))
        number = len(self.inputs)
        attrs = {"index": number, "scalar": True} if scalar else {"index": number}
        place = self.add("input", (), attrs, spec, ("input", number, scalar, texts(spec.shape), spec.dtype))
        self.inputs.append(place)
        return place

    def constant(self, value: Any, spec: Spec) -> int:
        """Return the place of a Python number that is the same at every run."""
        return self.add("constant", (), {"value": value}, spec, ("constant", repr(value), spec.dtype))

    def stands(self, place: int, known: int, first: int) -> None:
        """Note that the entry at ``place`` does, with all from ``first`` on, what that at ``known`` does."""
        self.twins[place] = known
        self.beside.update(range(first, len(self.entries)))

    def alive(self) -> list[LazyValue]:
        """Return the pending values that somebody has: tensors, or histories."""
        found = []
        for k in range(len(self.pendings)):
            p = self.pendings[k]
            if getrefcount(p) > _HELD:
                found.append(p)
        return found

    def needed(self, outputs: Sequence[int], inputs: Sequence[int]) -> list[int]:
        """Return the places that ``outputs`` are computed from, given ``inputs``, which are among them."""
        given = {*inputs}
        wanted = {*outputs, *given}
        for place in range(len(self.entries) - 1, -1, -1):
            if place in wanted and place not in given:
                wanted.update(self.entries[place].operands)
        return sorted(wanted)

    def key(
        self, outputs: Sequence[int], inputs: Sequence[int], sizes: Mapping[str, int] = MappingProxyType({})
    ) -> Key:
        """Return the name of a program from inputs to outputs: equal programs have equal names."""
        return self._key(outputs, inputs, sizes, self.needed(outputs, inputs), frozenset())

    def form(self, outputs: Sequence[int]) -> tuple[Key, list[int]]:
        """Return what tells a program from others but for its constants, and the places of those."""
        places = self.needed(outputs, self.inputs)
        constants = [p for p in places if type(self.entries[p].attrs.get("value")) in (int, float)]
        constants = [p for p in constants if self.entries[p].op == "constant"]
        return self._key(outputs, self.inputs, {}, places, frozenset(constants)), constants

    def _key(
        self, outputs: Sequence[int], inputs: Sequence[int], sizes: Mapping[str, int], places: Sequence[int],
        left: Container[int],
    ) -> Key:  # fmt: skip
        numbers = {place: k for k, place in enumerate(places)}
        given = {place: k for k, place in enumerate(inputs)}
        body: list[Any] = [
            (given[p], e.spec, _is_scalar(e)) if p in given
            else e.spec if p in left
            else (e.key, e.again, *[numbers[x] for x in e.operands])
            for p, e in zip(places, self._closed(places, sizes), strict=True)
        ]  # fmt: skip
        return (self.device, tuple(body), tuple([numbers[p] for p in outputs]))

    def graph(
        self, outputs: Sequence[int], inputs: Sequence[int], sizes: Mapping[str, int] = MappingProxyType({}),
        apart: dict[int, tuple[int, ...]] | None = None,
    ) -> Graph:  # fmt: skip
        """Return the program from ``inputs``, any places, to ``outputs`` as a graph, for these sizes.

        ``apart`` is told which operands of nodes, by id, have no history.
        """
        given = {place: k for k, place in enumerate(inputs)}
        made: dict[int, Node] = {}
        places = self.needed(outputs, inputs)
        for place, e in zip(places, self._closed(places, sizes), strict=True):
            if place in given:
                attrs = {"index": given[place], **({"scalar": True} if _is_scalar(e) else {})}
                made[place] = Node(op="input", attrs=attrs, spec=e.spec)
            else:
                operands = tuple(made[x] for x in e.operands)
                made[place] = Node(
                    op=e.op, inputs=operands, attrs=e.attrs, spec=e.spec, recompute_tag=e.again
                )
                if apart is not None and place in self.apart:
                    apart[id(made[place])] = self.apart[place]
        return Graph(inputs=tuple(made[p] for p in inputs), outputs=tuple(made[p] for p in outputs))

    def _closed(self, places: Sequence[int], sizes: Mapping[str, int]) -> list[Entry]:
        """Return the entries for these sizes: as they would be had the lengths never been open."""
        if not sizes:
            return [self.entries[p] for p in places]
        close, opened = substitute(sizes), self._opened()
        return [_closed(self.entries[p], close) if opened[p] else self.entries[p] for p in places]


def _is_scalar(e: Entry) -> bool:
    """Return whether an input is a Python number: one of the script's, or a constant that is given."""
    return "scalar" in e.attrs or e.op == "constant"


def _closed(e: Entry, close: Callable[[Any], Any]) -> Entry:
    """Return an entry without open lengths."""
    spec, attrs, key = Spec(close(e.spec.shape), e.spec.dtype), close(dict(e.attrs)), e.key
    if e.op == "result":
        key = (*e.key[:2], spec)
    elif e.op not in ("constant", "cast", "input"):
        key = (e.key[0], tuple((k, repr(v)) for k, v in attrs.items()), *e.key[2:])
    return Entry(e.op, e.operands, attrs, spec, key, e.again)


def _references() -> int:
    """Return how many references ``alive`` counts for a value that nobody else has."""
    pendings = [object()]
    for k in range(len(pendings)):
        p = pendings[k]
        count = getrefcount(p)
    return count


_HELD: Final = _references()
