"""``OpTrace``: builds the graph of what a captured function did on one device, op by op.

Equal ops of equal operands are one node (hash-consing), which is found by its key; so the list of keys is
also the name of a program, under which its executable is found again. A program is a part of the graph: it
takes the nodes of the trace as they are, but for its own inputs and for lengths that were symbolic.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from math import prod
from sys import getrefcount
from types import MappingProxyType
from typing import Any, Final

from ...backend_interface.graph import Graph, Node
from ...devices.device import Device
from ...ops.definition import AFTER, Spec
from ...tracing.lazy_value import LazyValue
from ...tracing.sym_int import is_open, substitute, texts

Key = tuple[Any, ...]


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class TraceNode(Node):
    """A node of the graph that a trace builds; ``operands`` are the places of its inputs in the trace.

    ``key`` is all else that its value depends on, hashable: equal nodes are one.
    """

    operands: tuple[int, ...]
    key: Key


@dataclass(frozen=True, slots=True)
class Transfer:
    """An input that is copied from another device: the value at ``place`` of the trace there."""

    device: Device
    place: int


@dataclass(slots=True, eq=False)
class InputSource:
    """The source of an input's value: a tensor, a number or name of the host prologue, a ``Transfer``."""

    source: Any
    value: Any


class OpTrace:
    """Nodes in order. Inputs are nodes too; ``inputs`` lists them, ``sources`` says where values come from.

    ``lazy_values`` stand for results. ``last_ordered`` is the last call of an op whose calls keep their
    order. ``shadows`` are nodes that compute what others do, for numbers that vary, by places; those
    ``shadow_only`` are there for them only. ``untracked`` says, by place, which
    operands of an op that has a history have none. ``symbols`` are those of the symbolic lengths.
    """

    def __init__(self, device: Device, symbols: Mapping[str, str]) -> None:
        self.device, self.symbols = device, symbols
        self.nodes: list[TraceNode] = []
        self.inputs: list[int] = []
        self.lazy_values: list[LazyValue] = []
        self.sources: list[InputSource] = []
        self.recompute_tag = 0
        self.last_ordered: int | None = None
        self._ordered_count = 0
        self.shadows: dict[int, int] = {}
        self.shadow_only: set[int] = set()
        self.untracked: dict[int, tuple[int, ...]] = {}
        self._known: dict[tuple[Key, tuple[int, ...], int], int] = {}
        self._is_symbolic: list[bool] = []

    @property
    def is_symbolic(self) -> bool:
        """Whether anything depends on lengths that are symbolic."""
        return bool(self.symbols) and any(self._symbolic())

    def _symbolic(self) -> list[bool]:
        """Return of each node whether it depends on symbolic lengths."""
        for e in self.nodes[len(self._is_symbolic) :]:
            self._is_symbolic.append(is_open(e.spec.shape) or is_open(dict(e.attrs)))
        return self._is_symbolic

    def elements(self, sizes: Mapping[str, int] = MappingProxyType({})) -> int:
        """Return how many elements all values have together, for these sizes."""
        return sum(prod(e.spec.shape) for e in self._substituted(range(len(self.nodes)), sizes))

    def nbytes(self) -> int:
        """Return how many bytes all values take together."""
        nodes = self._substituted(range(len(self.nodes)), {})
        return sum(prod(e.spec.shape) * e.spec.dtype.itemsize for e in nodes)

    def detached(self) -> OpTrace:
        """Return what was recorded without the values it was recorded with, which it would keep alive."""
        detached = copy(self)
        detached.inputs, detached.sources, detached.lazy_values = [*self.inputs], [], []
        return detached

    def add(self, op: str, operands: tuple[int, ...], attrs: Mapping[str, Any], spec: Spec, key: Key) -> int:
        """Return the place of an op's result: a new one, or that of the same op recorded before."""
        existing = self._known.get((key, operands, self.recompute_tag))
        if existing is not None:
            return existing
        place = len(self.nodes)
        nodes = self.nodes
        nodes.append(
            TraceNode(
                op=op, inputs=tuple([nodes[x] for x in operands]), attrs=attrs, spec=spec,
                recompute_tag=self.recompute_tag, operands=operands, key=key,
            )
        )  # fmt: skip
        self._known[key, operands, self.recompute_tag] = place
        return place

    def result(self, place: int, index: int, spec: Spec) -> int:
        """Return the place of one of the results of an op that has several."""
        key = ("result", index, texts(spec.shape), spec.dtype)
        return self.add("result", (place,), {"index": index}, spec, key)

    def add_ordered(
        self, op: str, operands: tuple[int, ...], attrs: Mapping[str, Any], spec: Spec, key: Key,
        several: bool,
    ) -> int:  # fmt: skip
        """Return the place of a call of an ``ordered`` op, always a new one, which follows the one before.

        The next one follows its first result, where it has ``several``: the call itself has no value.
        """
        if self.last_ordered is not None:
            operands, attrs = (*operands, self.last_ordered), {**attrs, AFTER: True}
        self._ordered_count += 1
        place = self.add(op, operands, attrs, spec, (*key, AFTER, self._ordered_count))
        self.last_ordered = self.result(place, 0, spec) if several else place
        return place

    def unreached(self, outputs: Sequence[int], inputs: Sequence[int], last: int | None) -> list[int]:
        """Return what a program must compute besides ``outputs``, so that it does the ``last`` ordered call.

        So it does those before too. None: there is none.
        """
        return [] if last is None or last in self.needed(outputs, inputs) else [last]

    def is_ordered(self, place: int) -> bool:
        """Return whether a value is computed from an ordered call."""
        return self.last_ordered is not None and any(
            AFTER in self.nodes[p].key for p in self.needed([place], ())
        )

    def tracked(self, place: int, apart: tuple[int, ...]) -> int:
        """Return the place of an op that has a history, but none of the operands ``apart``.

        It is the same op where these are others: its values are equal, and its derivative is not.
        """
        if self.untracked.setdefault(place, apart) == apart:
            return place
        e = self.nodes[place]
        other = self.add(e.op, e.operands, e.attrs, e.spec, (*e.key, apart))
        self.untracked[other] = apart
        return other

    def input(self, spec: Spec, source: Any, value: Any, *, scalar: bool = False) -> int:
        """Return the place of a new input; ``scalar``: a Python number."""
        self.sources.append(InputSource(source, value))
        number = len(self.inputs)
        attrs = {"index": number, "scalar": True} if scalar else {"index": number}
        place = self.add("input", (), attrs, spec, ("input", number, scalar, texts(spec.shape), spec.dtype))
        self.inputs.append(place)
        return place

    def constant(self, value: Any, spec: Spec) -> int:
        """Return the place of a Python number that is the same at every run."""
        return self.add("constant", (), {"value": value}, spec, ("constant", repr(value), spec.dtype))

    def shadow(self, place: int, original: int, first: int) -> None:
        """Note that the nodes from ``first`` to ``place`` compute what the one at ``original`` does."""
        self.shadows[place] = original
        self.shadow_only.update(range(first, len(self.nodes)))

    def live_values(self) -> list[LazyValue]:
        """Return the lazy values that are still referenced: tensors, or histories."""
        live = []
        for k in range(len(self.lazy_values)):
            p = self.lazy_values[k]
            if getrefcount(p) > _OWN_REFERENCES:
                live.append(p)
        return live

    def needed(self, outputs: Sequence[int], inputs: Sequence[int]) -> list[int]:
        """Return the places that ``outputs`` are computed from, given ``inputs``, which are among them."""
        input_places = {*inputs}
        needed = {*outputs, *input_places}
        for place in range(len(self.nodes) - 1, -1, -1):
            if place in needed and place not in input_places:
                needed.update(self.nodes[place].operands)
        return sorted(needed)

    def key(
        self, outputs: Sequence[int], inputs: Sequence[int], sizes: Mapping[str, int] = MappingProxyType({})
    ) -> Key:
        """Return the name of a program from inputs to outputs: equal programs have equal names."""
        return self._key(outputs, inputs, sizes, self.needed(outputs, inputs), frozenset())

    def key_without_constants(self, outputs: Sequence[int]) -> tuple[Key, list[int]]:
        """Return what tells a program from others but for its constants, and the places of those."""
        places = self.needed(outputs, self.inputs)
        constants = [p for p in places if type(self.nodes[p].attrs.get("value")) in (int, float)]
        constants = [p for p in constants if self.nodes[p].op == "constant"]
        return self._key(outputs, self.inputs, {}, places, frozenset(constants)), constants

    def _key(
        self, outputs: Sequence[int], inputs: Sequence[int], sizes: Mapping[str, int], places: Sequence[int],
        lifted: Container[int],
    ) -> Key:  # fmt: skip
        numbers = {place: k for k, place in enumerate(places)}
        input_numbers = {place: k for k, place in enumerate(inputs)}
        body: list[Any] = [
            (input_numbers[p], e.spec, _is_scalar(e)) if p in input_numbers
            else e.spec if p in lifted
            else (e.key, e.recompute_tag, *[numbers[x] for x in e.operands])
            for p, e in zip(places, self._substituted(places, sizes), strict=True)
        ]  # fmt: skip
        return (self.device, tuple(body), tuple([numbers[p] for p in outputs]))

    def graph(
        self, outputs: Sequence[int], inputs: Sequence[int], sizes: Mapping[str, int] = MappingProxyType({}),
        untracked: dict[int, tuple[int, ...]] | None = None,
    ) -> Graph:  # fmt: skip
        """Return the program from ``inputs``, any places, to ``outputs`` as a graph, for these sizes.

        ``untracked`` receives which operands of nodes, by id, have no history.
        """
        input_numbers = {place: k for k, place in enumerate(inputs)}
        nodes: dict[int, Node] = {}
        places = self.needed(outputs, inputs)
        for place, e in zip(places, self._substituted(places, sizes), strict=True):
            if place in input_numbers:
                attrs = {"index": input_numbers[place], **({"scalar": True} if _is_scalar(e) else {})}
                own = e.op == "input" and e.attrs == attrs
                nodes[place] = e if own else Node(op="input", attrs=attrs, spec=e.spec)
                continue
            operands = tuple([nodes[x] for x in e.operands])
            nodes[place] = e if operands == e.inputs else e.of(operands)
            if untracked is not None and place in self.untracked:
                untracked[id(nodes[place])] = self.untracked[place]
        return Graph(inputs=tuple(nodes[p] for p in inputs), outputs=tuple(nodes[p] for p in outputs))

    def _substituted(self, places: Sequence[int], sizes: Mapping[str, int]) -> list[TraceNode]:
        """Return the nodes for these sizes, as they would be had no length been symbolic."""
        if not sizes:
            return [self.nodes[p] for p in places]
        close, opened = substitute(sizes), self._symbolic()
        return [_substituted(self.nodes[p], close) if opened[p] else self.nodes[p] for p in places]


def _is_scalar(e: TraceNode) -> bool:
    """Return whether an input is a Python number: one of the host prologue, or a constant that is given."""
    return "scalar" in e.attrs or e.op == "constant"


def _substituted(e: TraceNode, close: Callable[[Any], Any]) -> TraceNode:
    """Return a node without symbolic lengths."""
    spec, attrs, key = Spec(close(e.spec.shape), e.spec.dtype), close(dict(e.attrs)), e.key
    if e.op == "result":
        key = (*e.key[:2], spec)
    elif e.op not in ("constant", "cast", "input"):
        key = (e.key[0], tuple((k, repr(v)) for k, v in attrs.items()), *e.key[2:])
    return TraceNode(
        op=e.op, inputs=e.inputs, attrs=attrs, spec=spec, recompute_tag=e.recompute_tag,
        operands=e.operands, key=key,
    )  # fmt: skip


def _references() -> int:
    """Return how many references ``live_values`` counts for a value that nobody else has."""
    values = [object()]
    for k in range(len(values)):
        p = values[k]
        count = getrefcount(p)
    return count


_OWN_REFERENCES: Final = _references()
