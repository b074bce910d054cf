"""Fused updates (of an optimizer): one node each until their kernel is made, once for all equal ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...backend_interface.graph import Graph, Node
from ...graph.rewrite import rebuild
from ..op_sets import INSIDE
from .access_map import loop_axes, own_access
from .fusion_groups import FusionGroup, StoredValue


def fused_updates(nodes: Sequence[Node]) -> dict[int, list[Node]]:
    """Return the fused updates of a graph by their ids, each with the nodes of its results."""
    results: dict[int, list[Node]] = {id(node): [] for node in nodes if INSIDE in node.attrs}
    for node in nodes if results else ():
        if node.op == "result" and id(node.inputs[0]) in results:
            results[id(node.inputs[0])].append(node)
    return results


def opened(group: FusionGroup, parts: Sequence[Node]) -> dict[Node, StoredValue]:
    """Return, for each of a fused update's results that is a node, the root that computes it."""
    ((update, place),) = [(root.node, root.order) for root in group.roots.values()]
    body: Graph = update.attrs[INSIDE]
    tag = update.recompute_tag
    done = rebuild(
        body, lambda node, inputs: replace(node, inputs=inputs, recompute_tag=tag),
        dict(zip(body.inputs, update.inputs, strict=True)),
    )  # fmt: skip
    roots: dict[Node, StoredValue] = {}
    for part in parts:
        value = done[body.outputs[part.attrs["index"]]]
        if value in update.inputs or any(value is root.node for root in roots.values()):  # then it is a copy
            value = Node(op="cast", inputs=(value,), attrs={"dtype": value.spec.dtype}, spec=value.spec)
        roots[part] = StoredValue(node=value, order=place, access=own_access(value.spec.shape), reads=())
    return roots


def group_of(group: FusionGroup, roots: Sequence[StoredValue]) -> FusionGroup:
    """Return the group of a fused update as that of the roots that compute its results."""
    shape = roots[0].node.spec.shape
    domain = tuple(shape[k] for k in loop_axes(shape))
    return replace(group, domain=domain, reduced=(), roots={id(root.node): root for root in roots})
