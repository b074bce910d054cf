"""Concatenations of what calls make: each part is put where the whole has it, so that nothing is copied.

It is what the gradients of query, key and value are, where one product made all three. Those of
more operands than a kernel may have are concatenations of concatenations.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...backend_interface.graph import Node
from ..ir.layout import Layout, ordered, reshape_strides


@dataclass(frozen=True, slots=True)
class Concatenation:
    """A concatenation, the results of calls that are its operands, and in which order its axes lie best."""

    whole: Node
    parts: tuple[Node, ...]
    order: tuple[int, ...]

    def layouts(self, slot: int) -> dict[int, Layout] | None:
        """Return where the whole lies in a slot, and each part, by id; None where a part is no view of it."""
        whole = ordered(slot, self.whole.spec.shape, self.order)
        axis, begin = self.whole.attrs["axis"], 0
        by_id = {id(self.whole): whole}
        for operand, part in zip(self.whole.inputs, self.parts, strict=True):
            strides = reshape_strides(operand.spec.shape, whole.strides, part.spec.shape)
            if strides is None or strides[-1] != 1:
                return None
            by_id[id(part)] = Layout(slot, part.spec.shape, strides, begin * whole.strides[axis])
            begin += operand.spec.shape[axis]
        return by_id


def joins(
    nodes: Sequence[Node], calls: Collection[Node], shown: Collection[Node]
) -> dict[int, Concatenation]:
    """Return the concatenations of results that nothing else reads, by the id of each such result.

    ``shown`` are the program's own results, which lie as they are.
    """
    wholes = [node for node in nodes if node.op == "concat" and 0 not in node.spec.shape]
    if not wholes:
        return {}
    users: dict[Node, list[Node]] = {}
    for node in nodes:
        for x in node.inputs:
            users.setdefault(x, []).append(node)
    by_part: dict[int, Concatenation] = {}
    for whole in wholes:
        parts = [_result(x, users, calls) for x in whole.inputs]
        if whole in shown or any(x is None or x in shown for x in parts):
            continue
        join = Concatenation(whole, tuple(x for x in parts if x is not None), _order(whole, users))
        by_part |= {id(x): join for x in join.parts}
    return by_part


def _result(node: Node, users: Mapping[Node, Sequence[Node]], calls: Collection[Node]) -> Node | None:
    """Return the result of a call that an operand is, but for its shape."""
    while len(users[node]) == 1 and node.op == "reshape":
        (node,) = node.inputs
    one = len(users[node]) == 1 and node.op == "result" and bool(node.spec.shape)
    return node if one and node.inputs[0] in calls else None


def _order(node: Node, users: Mapping[Node, Sequence[Node]]) -> tuple[int, ...]:
    """Return the order of axes in which the first to permute a value wants it."""
    last = len(node.spec.shape) - 1
    for user in users.get(node, ()):
        if user.op == "permute_dims" and user.attrs["axes"][-1] == last:
            return tuple(user.attrs["axes"])
    return tuple(range(last + 1))
