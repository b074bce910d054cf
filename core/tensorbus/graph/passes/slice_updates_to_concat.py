"""Sums of values that are zero but for a part: what derivatives of taking a value apart bring along."""

from __future__ import annotations

from ...backend_interface.graph import Graph, Node
from ...ops.definition import Spec
from ..rewrite import Rule
from .scatter_patterns import is_zeros, uses_of


def joined_updates(graph: Graph) -> Rule:
    """Return the rule that writes such a sum as a concatenation, where the parts cover the whole.

    A part's -0.0 stays what it is; added to zeros it would be 0.0.
    """
    uses = uses_of(graph) if any(node.op == "slice_update" for node in graph) else {}

    def rule(node: Node) -> Node:
        if node.op != "add":
            return node
        updates: list[Node] = []
        stack = list(node.inputs)
        while stack:
            x = stack.pop()
            if uses.get(id(x), 0) != 1 or x.spec != node.spec:
                return node
            if x.op == "add":
                stack += x.inputs
            elif x.op == "slice_update" and is_zeros(x.inputs[0]):
                updates.append(x)
            else:
                return node
        return _concat(node, updates) or node

    return rule


def _concat(node: Node, parts: list[Node]) -> Node | None:
    """Return the parts one behind the other; None where they are not all of ``node``."""
    shape = node.spec.shape
    axes = {k for x in parts for k, n in enumerate(x.inputs[1].spec.shape) if n != shape[k]}
    if len(axes) != 1 or any(step != 1 for x in parts for step in x.attrs["step"]):
        return None
    (axis,) = axes
    parts = sorted(parts, key=lambda x: int(x.attrs["start"][axis]))
    end = 0
    for x in parts:
        start, length = x.attrs["start"], x.inputs[1].spec.shape[axis]
        if start[axis] != end or any(s for k, s in enumerate(start) if k != axis):
            return None
        end += length
    if end != shape[axis]:
        return None
    inputs = tuple(x.inputs[1] for x in parts)
    return Node(
        op="concat",
        inputs=inputs,
        attrs={"axis": axis},
        spec=Spec(shape, node.spec.dtype),
        recompute_tag=node.recompute_tag,
    )
