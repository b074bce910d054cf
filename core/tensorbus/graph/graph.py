"""A captured program as data: ops in single-assignment form, typed and printable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..ops.op import Spec


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
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

    @property
    def shape(self) -> tuple[int, ...]:
        """Its lengths: a node can stand where a device's value stands."""
        return self.spec.shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """``outputs`` as functions of ``inputs``. Nodes are reached from the outputs."""

    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]

    def __iter__(self) -> Iterator[Node]:
        """Yield every node once, operands before users."""
        seen: set[int] = set()
        for root in (*self.inputs, *self.outputs):
            stack = [(root, False)]
            while stack:
                node, ready = stack.pop()
                if id(node) in seen:
                    continue
                if ready:
                    seen.add(id(node))
                    yield node
                    continue
                stack.append((node, True))
                stack.extend((operand, False) for operand in reversed(node.inputs))

    def __str__(self) -> str:
        names = {id(node): f"%{k}" for k, node in enumerate(self)}
        lines = []
        for node in self:
            operands = [names[id(operand)] for operand in node.inputs]
            attrs = [f"{key}={value!r}" for key, value in node.attrs.items()]
            lines.append(f"{names[id(node)]}: {node.spec} = {node.op}({', '.join(operands + attrs)})")
        lines.append(f"return {', '.join(names[id(node)] for node in self.outputs)}")
        return "\n".join(lines)
