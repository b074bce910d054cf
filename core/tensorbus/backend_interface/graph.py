"""A captured program as data: ops in static single assignment, typed and printable.

It is what a lowering is handed, so it lies with the protocols of backends and knows dtypes only.
What rewrites graphs lies in ``graph/``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .spec import Spec

Symbol = tuple[str, int, int, int | None]


@dataclass(slots=True, kw_only=True, eq=False, repr=False)  # not frozen: thousands are made, thrice as fast
class Node:
    """One value of a graph: what ``op`` makes of ``inputs``. Nobody but ``simplify``, its own, changes it.

    A graph's own inputs have the op ``"input"`` and the attribute ``index``; an operand that is a Python
    scalar has the op ``"constant"`` and the attribute ``value``. An op of several results is one node, with
    the spec of the first; nodes of the op ``"result"`` with the attribute ``index`` take it apart. Equal
    nodes may be made one, but not where ``recompute_tag`` differs: those are computed again to save memory.
    """

    op: str
    inputs: tuple[Node, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    spec: Spec
    recompute_tag: int = 0

    @property
    def again(self) -> int:
        """The former name of ``recompute_tag``."""
        return self.recompute_tag

    def __repr__(self) -> str:
        """Return what it is, without its operands: they may be shared, and many."""
        attrs = "".join(f", {key}={value!r}" for key, value in self.attrs.items())
        return f"<Node {self.op} of {len(self.inputs)}{attrs}: {self.spec}>"

    def of(self, inputs: tuple[Node, ...]) -> Node:
        """Return the same of other operands."""
        return Node(
            op=self.op, inputs=inputs, attrs=self.attrs, spec=self.spec, recompute_tag=self.recompute_tag
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Its lengths: a node can stand where a device's value stands."""
        return self.spec.shape


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Graph:
    """``outputs`` as functions of ``inputs``. Nodes are reached from the outputs."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    _order: list[Node] = field(default_factory=list, init=False, repr=False, compare=False)

    def __iter__(self) -> Iterator[Node]:
        """Yield every node once, operands before users."""
        if not self._order:
            self._order.extend(self._ordered())
        return iter(self._order)

    def known(self, order: list[Node]) -> Graph:
        """Return the graph itself, told its nodes in an order with operands before users."""
        self._order[:] = order
        return self

    def _ordered(self) -> list[Node]:
        """Return the nodes in the order in which operands name them; what is computed again by its tags.

        Those count up in the order of the program that was captured, which let one block go before the next.
        """
        order = self._from_outputs(None)
        if not any(node.recompute_tag for node in order):
            return order
        latest: dict[Node, int] = {}
        for node in order:
            latest[node] = max([node.recompute_tag, *[latest[x] for x in node.inputs]])
        return self._from_outputs(latest)

    def _from_outputs(self, latest: Mapping[Node, int] | None) -> list[Node]:
        seen: set[Node] = set()
        order: list[Node] = []
        for root in (*self.inputs, *self.outputs):
            stack = [root]
            while stack:
                node = stack[-1]
                if node not in seen:
                    if not seen.issuperset(node.inputs):
                        left = [x for x in reversed(node.inputs) if x not in seen]
                        if latest is not None:
                            left.sort(key=latest.__getitem__, reverse=True)
                        stack += left
                        continue
                    seen.add(node)
                    order.append(node)
                stack.pop()
        return order

    def __repr__(self) -> str:
        return f"<Graph of {len(self.inputs)} inputs and {len(self.outputs)} outputs>"

    def __str__(self) -> str:
        names = {node: f"%{k}" for k, node in enumerate(self)}
        specs: dict[int, str] = {}
        lines = []
        for node, name in names.items():
            spec = specs.get(id(node.spec)) or specs.setdefault(id(node.spec), str(node.spec))
            arguments = [names[operand] for operand in node.inputs]
            arguments += [f"{key}={value!r}" for key, value in node.attrs.items()]
            lines.append(f"{name}: {spec} = {node.op}({', '.join(arguments)})")
        lines.append(f"return {', '.join([names[node] for node in self.outputs])}")
        return "\n".join(lines)


class SubGraph:
    """A graph as an attribute of a node that runs it, compared by what it computes.

    Its text is its name, and stands in the text of the program around it too. ``derived`` keeps what was made
    of it: derivatives, programs. Where its lengths are open, ``symbols`` are those of its ``PlanEnv``: the
    name, an example, the least and the most, which may be None.
    """

    __slots__ = ("_hash", "derived", "graph", "symbols", "text")

    def __init__(self, graph: Graph, symbols: tuple[Symbol, ...] = ()) -> None:
        self.graph, self.symbols = graph, symbols
        self.text = f"{{{graph}}}"
        self._hash = hash(self.text)
        self.derived: dict[Any, Any] = {}

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SubGraph) and self.text == other.text)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.text

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """The specs of the operands."""
        return tuple([node.spec for node in self.graph.inputs])

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """The specs of the results."""
        return tuple([node.spec for node in self.graph.outputs])
