"""Pieces that the schedules of fused groups share: the lengths of a domain, and where outputs are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Final

from ....backend_interface.graph import Node
from ....dtypes.definition import DType
from ....tracing.sym_int import always_same, near
from ...fusion.canonicalize import PLAIN, DomainKernel, Output
from ...heuristics import Heuristics
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.inline import Index, Inliner
from ...ir.layout import Layout
from ...ir.loop_ir import Expr, For, If, Stmt, Store

PAST: Final = Heuristics().nontemporal_min_bytes
"""What ``Heuristics.nontemporal_min_bytes`` is where a device says nothing else."""


def is_nontemporal(shape: Sequence[int], dtype: DType, limits: Heuristics) -> bool:
    """Return whether a result is best stored so that it bypasses the caches."""
    return near(prod(shape)) * dtype.itemsize >= limits.nontemporal_min_bytes


def stored_past(body: Sequence[Stmt]) -> set[str]:
    """Return the buffers that statements store whole vectors to, past the caches."""
    buffers: set[str] = set()
    for s in body:
        if isinstance(s, Store) and s.nontemporal and s.value.lanes > 1:
            buffers.add(s.buffer)
        elif isinstance(s, For | If):
            buffers |= stored_past(s.body)
    return buffers


def domain_lengths(b: Builder, inliner: Inliner, fused: DomainKernel) -> tuple[Expr, ...]:
    """Return the lengths of a domain: those of a node that has all its axes, where there is one."""
    for node in fused.graph:
        if always_same(node.spec.shape, fused.domain):
            return inliner.lengths(node)
    return tuple(b.size(f"d{k}", n) for k, n in enumerate(fused.domain))


def store_offset(
    b: Builder, name: str, o: Output, index: Index, lengths: Sequence[Expr], fused: DomainKernel
) -> Expr:
    """Return where an output has the element at ``index`` of the domain."""
    shape = o.node.spec.shape
    if Layout(o.slot, shape, o.strides).is_contiguous:
        long_axes = [k for k, n in enumerate(shape) if n != 1]
        return ix.flatten([index[k] for k in long_axes], [lengths[k] for k in long_axes])
    return ix.dot(index, [b.size(f"{name}_s{k}", s) for k, s in enumerate(o.strides)])


def aligned_slots(fused: DomainKernel, full: bool = True, picks: bool = True) -> frozenset[int]:
    """Return the slots that a group reads only at the element that it stores, where these are its outputs.

    ``full``: for the outputs of the whole domain, else for those of rows. ``picks``: whether what an index
    chooses in a row counts as read elsewhere.
    """
    outs = {o.strides for o in fused.outputs if fused.spans_domain(o.node) == full}
    if len(outs) != 1:
        return frozenset()
    aligned: dict[int, bool] = {}
    (strides,) = outs
    moved = elsewhere(fused.graph, picks=picks)
    for node in fused.graph:
        layout = fused.inputs.get(id(node))
        if layout is not None:
            at = layout.strides == strides and layout.offset == 0 and layout.late is None
            aligned[layout.slot] = aligned.get(layout.slot, True) and at and id(node) not in moved
    return frozenset(slot for slot, at in aligned.items() if at)


def elsewhere(nodes: Iterable[Node], picks: bool = True) -> set[int]:
    """Return the ids of the nodes of a canonical group that are read at other elements than the domain's.

    ``picks``: whether what an index chooses in a row counts as that.
    """
    visited: set[int] = set()
    stack: list[Node] = []
    for node in nodes:
        if node.op not in PLAIN and (picks or node.op != "pick"):
            stack += _moved(node)
    while stack:
        node = stack.pop()
        if id(node) not in visited:
            visited.add(id(node))
            stack += node.inputs
    return visited


def _moved(node: Node) -> tuple[Node, ...]:
    """Return the operands of which a node reads other elements: what a part of another is written over."""
    if node.op != "slice_update":
        return node.inputs
    x, part = node.inputs
    whole = part.spec.shape == x.spec.shape and {*node.attrs["step"]} <= {1}
    return () if whole else (part,)
