"""The nodes of blocks: computations that are no op, and bring a way of their own to go back through them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..devices.device import ValueType
from ..dispatch.plan import Plan
from ..ops.definition import Op
from ..tensor.tensor import Tensor
from .engine import Node, part_of


def block_plan(name: str, family: str, kinds: Sequence[ValueType], shapes: Sequence[tuple[int, ...]]) -> Plan:
    """Return a plan with what the engine reads of it, for results of these kinds and shapes."""
    names = tuple([f"result_{k}" for k in range(len(kinds))]) if len(kinds) > 1 else ()
    op: Any = Op(
        name=name, family=family, operands=(), arguments=lambda: ((), {}), infer=tuple, results=names,
        dtypes=(),
    )  # fmt: skip
    return Plan(
        op=op, operands=(), run=None, out=kinds[0], casts=(), attrs={}, outs=tuple(kinds),
        shapes=tuple(shapes),
    )  # fmt: skip


def attach(node: Node, results: Sequence[Tensor]) -> None:
    """Make a node the history of the results of its block."""
    if len(results) == 1:
        results[0]._node = node
        return
    node.parts = [None] * len(results)
    for place, x in enumerate(results):
        x._node = part_of(node, place)
