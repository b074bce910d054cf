"""Values that are computed again where they are wanted, instead of kept: memory costs more than arithmetic.

A function of an activation that forward and backward both need is the example: backward reads the activation
anyway. A value is computed again only by kernels that read all of its operands.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Final

from ...backend_interface.graph import Node
from ...tracing.sym_int import near
from ..ir.layout import Layout
from ..op_sets import ELEMENTWISE, calls_function
from ..target import Target
from .access_map import FREE, reads
from .fusion_groups import FusionGroup

_MOVED: Final = frozenset({"broadcast_to", "permute_dims", "reshape"})
_NEVER: Final = 1 << 20


def rematerialized(
    groups: Sequence[FusionGroup], buffers: Collection[int], where: Mapping[int, Layout],
    nodes: Sequence[Node], shown: Collection[int], target: Target,
) -> set[int]:  # fmt: skip
    """Return the ids of the nodes among ``buffers`` that are better computed by each kernel that reads them.

    ``groups`` are the kernels as they would be, ``shown`` the ids of what must have a buffer.
    """
    limits = target.heuristics
    readers: dict[int, list[FusionGroup]] = {}
    elsewhere: set[int] = set()
    for group in groups:
        for root in group.roots.values():
            for node, at in root.reads:
                if id(node) in group.roots:
                    continue
                if at is None or FREE in at or {*at} - {None} != {*range(len(group.domain))}:
                    elsewhere.add(id(node))
                elif group not in (users := readers.setdefault(id(node), [])):
                    users.append(group)
    viewed = {id(n.inputs[0]) for n in nodes if n.inputs and id(n) in where and id(n) not in buffers}
    stop = {n for n in nodes if id(n) in buffers or n.op in ("input", "constant")}
    stored = elsewhere | viewed | {*shown}
    recomputed: set[int] = set()
    inside: dict[int, set[Node]] = {}
    for group in groups:
        for key, root in group.roots.items():
            users, size = readers.get(key, []), near(prod(root.node.spec.shape))
            if not users or key in stored or size < limits.recompute_min_elements:
                continue
            stop.discard(root.node)
            cone = reads(root.node, root.access, group.reduced, stop)
            leaves = [n for n, _ in cone if n in stop]
            body = {n for n, _ in cone}.difference(leaves)
            large = {
                (id(n), at is None) for n, at in cone if n in stop and near(prod(n.spec.shape)) * 2 > size
            }
            nearby = not any(id(n) in group.roots and id(n) not in readers for n in leaves)
            nearby = nearby and all(
                large <= _read_by(u) and u.size <= limits.kernel_max_ops - len(body) for u in users
            )
            added = [body - inside.get(user.number, set()) for user in users]
            bytes_kept = root.node.spec.dtype.itemsize * (1 + len(users))
            if (
                not nearby
                or sum(_cost(nodes, target) for nodes in added) > limits.recompute_ops_per_byte * bytes_kept
            ):
                stop.add(root.node)
                continue
            recomputed.add(key)
            stored |= {id(n) for n in leaves}
            for user in users:
                inside.setdefault(user.number, set()).update(body)
    return recomputed


def _cost(body: Collection[Node], target: Target) -> int:
    """Return what computing the nodes takes for each element, in simple ops."""
    cost = 0
    for node in body:
        if node.op not in ELEMENTWISE and node.op not in _MOVED and node.op != "constant":
            return _NEVER
        if calls_function(node.op):
            vectors = target.vector_ops | target.pointwise_vector_ops
            fast = not target.row_per_task or node.op in vectors
            cost += target.heuristics.function_ops if fast else _NEVER
        else:
            cost += node.op in ELEMENTWISE
    return cost


def _read_by(group: FusionGroup) -> set[tuple[int, bool]]:
    """Return the ids of what a kernel reads, and whether it does so at other places than its own."""
    return {(id(n), at is None) for root in group.roots.values() for n, at in root.reads}
