"""A captured program as data: ops in single-assignment form, typed and printable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ops.op import Spec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Node:
    """One value of a graph: what ``op`` makes of ``inputs``.

    A graph's own inputs have the op ``"input"`` and the attribute ``index``; an operand that is a Python
    scalar has the op ``"constant"`` and the attribute ``value``. An op of several results is one node, with
    the spec of the first; nodes of the op ``"result"`` with the attribute ``index`` take it apart. Equal
    nodes may be made one, but not where ``again`` differs: those are computed again to save memory.
    """

    op: str
    inputs: tuple[Node, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    spec: Spec
    again: int = 0

    def __repr__(self) -> str:
        """Return what it is, without what it is made of: that may be shared, and long."""
        attrs = "".join(f", {key}={value!r}" for key, value in self.attrs.items())
        return f"<Node {self.op} of {len(self.inputs)}{attrs}: {self.spec}>"

    def of(self, inputs: tuple[Node, ...]) -> Node:
        """Return the same of other operands."""
        return Node(op=self.op, inputs=inputs, attrs=self.attrs, spec=self.spec, again=self.again)

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

    def _ordered(self) -> list[Node]:
        seen: set[int] = set()
        order: list[Node] = []
        for root in (*self.inputs, *self.outputs):
            stack = [root]
            while stack:
                node = stack[-1]
                left = [x for x in node.inputs if id(x) not in seen] if id(node) not in seen else []
                if left:
                    left.reverse()
                    stack += left
                    continue
                stack.pop()
                if id(node) not in seen:
                    seen.add(id(node))
                    order.append(node)
        return order

    def __repr__(self) -> str:
        return f"<Graph of {len(self.inputs)} inputs and {len(self.outputs)} outputs>"

    def __str__(self) -> str:
        names = {id(node): f"%{k}" for k, node in enumerate(self)}
        lines = []
        for node in self:
            operands = [names[id(operand)] for operand in node.inputs]
            attrs = [f"{key}={value!r}" for key, value in node.attrs.items()]
            lines.append(f"{names[id(node)]}: {node.spec} = {node.op}({', '.join(operands + attrs)})")
        lines.append(f"return {', '.join(names[id(node)] for node in self.outputs)}")
        return "\n".join(lines)
