"""What the schedules of fused groups share: the lengths of a domain, and where outputs are stored."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ..dtypes import DType
from ..graph.graph import Node
from . import index as ix
from .builder import Builder
from .canonical import Fused, Output
from .ir import Expr, For, If, Stmt, Store
from .layout import Layout
from .pull import Index, Pull

PAST: Final = 1 << 25
"""From how many bytes on the caches have forgotten a result's beginning when its end is stored."""


def goes_past(shape: Sequence[int], dtype: DType) -> bool:
    """Return whether a result is best stored past the caches."""
    return prod(shape) * dtype.itemsize >= PAST


def stored_past(body: Sequence[Stmt]) -> set[str]:
    """Return the buffers that statements store whole vectors to, past the caches."""
    found: set[str] = set()
    for s in body:
        if isinstance(s, Store) and s.past and s.value.lanes > 1:
            found.add(s.buffer)
        elif isinstance(s, For | If):
            found |= stored_past(s.body)
    return found


def domain_lengths(b: Builder, pull: Pull, fused: Fused) -> tuple[Expr, ...]:
    """Return the lengths of a domain: those of a node that has all its axes, where there is one."""
    for node in fused.graph:
        if node.spec.shape == fused.domain:
            return pull.lengths(node)
    return tuple(b.size(f"d{k}", n) for k, n in enumerate(fused.domain))


def place_of(b: Builder, name: str, o: Output, index: Index, lengths: Sequence[Expr], fused: Fused) -> Expr:
    """Return where an output has the element at ``index`` of the domain."""
    shape = o.node.spec.shape
    if Layout(o.slot, shape, o.strides).is_contiguous:
        kept = [k for k, n in enumerate(shape) if n != 1]
        return ix.flatten([index[k] for k in kept], [lengths[k] for k in kept])
    return ix.dot(index, [b.size(f"{name}_s{k}", s) for k, s in enumerate(o.strides)])


def same_slots(fused: Fused, full: bool = True, picks: bool = True) -> frozenset[int]:
    """Return the slots that a group reads only at the element that it stores, where these are its outputs.

    ``full``: for the outputs of the whole domain, else for those of rows. ``picks``: whether what an index
    chooses in a row counts as read elsewhere.
    """
    outs = {o.strides for o in fused.outputs if fused.full(o.node) == full}
    if len(outs) != 1:
        return frozenset()
    given: dict[int, bool] = {}
    (strides,) = outs
    moving = {"permute_dims", "reshape", "gather"} | ({"pick"} if picks else set())
    plain = {id(x) for n in fused.graph if n.op in moving for x in _all(n)}
    for node in fused.graph:
        layout = fused.leaves.get(id(node))
        if layout is not None:
            at = layout.strides == strides and layout.offset == 0 and layout.late is None
            given[layout.slot] = given.get(layout.slot, True) and at and id(node) not in plain
    return frozenset(slot for slot, at in given.items() if at)


def _all(node: Node) -> list[Node]:
    found: list[Node] = []
    stack = [node]
    while stack:
        at = stack.pop()
        if not any(at is f for f in found):
            found.append(at)
            stack.extend(at.inputs)
    return found
