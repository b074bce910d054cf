"""Graphs as they suit light items that share rows.

Reductions of everything are made in two steps, of each row and then of what rows gave. Scatters by indices of
several axes go by one: every item would take its position apart for each index again.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from ..graph.graph import Graph, Node
from ..graph.patterns import reshaped
from ..ops.op import Spec
from .target import Target

WHOLE: Final = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""The reductions whose results can be reduced again."""
LEAST: Final = 1 << 16
ROWS, LENGTH = 64, 256
"""How many rows there are at least, and how long each of them."""
MOST: Final = 1 << 12


def staged(graph: Graph, target: Target) -> Graph:
    """Return the graph with such reductions and scatters changed; the graph itself where there are none."""
    if not target.swap or not any(_is_whole(node) or _is_deep(node) for node in graph):
        return graph
    done: dict[int, Node] = {}
    for node in graph:
        made = node
        if any(done[id(x)] is not x for x in node.inputs):
            made = replace(node, inputs=tuple(done[id(x)] for x in node.inputs))
        done[id(node)] = _in_stages(made) if _is_whole(made) else _flat(made) if _is_deep(made) else made
    return Graph(inputs=graph.inputs, outputs=tuple(done[id(x)] for x in graph.outputs))


def _is_whole(node: Node) -> bool:
    if node.op not in WHOLE:
        return False
    shape = node.inputs[0].spec.shape
    return prod(shape) >= LEAST and len(node.attrs["axis"]) == len(shape)


def _is_deep(node: Node) -> bool:
    return node.op == "scatter" and len(node.inputs[2].spec.shape) > 1 and 0 not in node.inputs[1].spec.shape


def _flat(node: Node) -> Node:
    x, value, *indices = node.inputs
    shape = indices[0].spec.shape
    count = prod(shape)
    values = reshaped(value, (count, *value.spec.shape[len(shape) :]))
    return replace(node, inputs=(x, values, *(reshaped(i, (count,)) for i in indices)))


def _in_stages(node: Node) -> Node:
    (x,) = node.inputs
    *outer, length = x.spec.shape
    if length < LENGTH or prod(outer) < ROWS:
        count = prod(x.spec.shape)
        rows = min(count & -count, MOST)
        if rows < ROWS or count // rows < LENGTH:
            return node
        x = reshaped(x, (rows, count // rows))
    *outer, length = x.spec.shape
    dtype = node.spec.dtype
    attrs = {**node.attrs, "axis": (len(outer),), "keepdims": False}
    first = replace(node, inputs=(x,), attrs=attrs, spec=Spec(tuple(outer), dtype))
    attrs = {**node.attrs, "axis": tuple(range(len(outer))), "keepdims": False}
    rest = replace(node, inputs=(first,), attrs=attrs, spec=Spec((), dtype))
    made = _in_stages(rest) if _is_whole(rest) else rest
    return made if made.spec.shape == node.spec.shape else reshaped(made, node.spec.shape)
