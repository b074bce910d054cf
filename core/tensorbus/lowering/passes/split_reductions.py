"""Split reductions, for work-items that share rows.

Reductions of everything are made in two steps, of each row and then of what rows gave, where workgroups that
share one do not count each other, and so are those of leading and last axes around others. Of these, some are
reductions of the last axes of a view: where there are results enough for a workgroup each.
Scatters by indices of several axes use one axis: every work-item would unflatten its position for each index
again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import DType, bool_, int64
from ...graph.passes.scatter_patterns import reshaped
from ...graph.rewrite import rewrite
from ...ops.definition import Spec
from ...tracing.sym_int import near
from ..heuristics import Heuristics
from ..op_sets import FINDS, accumulator
from ..target import Target

WHOLE: Final = frozenset({"sum", "prod", "max", "min", "any", "all"})
"""The reductions whose results can be reduced again."""


def split_reductions(graph: Graph, target: Target, scatters_rows: Callable[[Node], bool]) -> Graph:
    """Return the graph with such reductions and scatters changed; the graph itself where there are none."""
    if not any(_rule(node, target, scatters_rows) for node in graph):
        return graph

    def rule(node: Node, _: Node) -> Node | None:
        parts = _rule(node, target, scatters_rows)
        return parts(node) if parts else None

    return rewrite(graph, rule)


def _rule(
    node: Node, target: Target, scatters_rows: Callable[[Node], bool]
) -> Callable[[Node], Node] | None:  # fmt: skip
    """Return what changes a node; None where it is right as it is."""
    if node.op == "scatter":
        deep = len(node.inputs[2].spec.shape) > 1 and 0 not in node.inputs[1].spec.shape
        return _flat if deep and not scatters_rows(node) else None
    if target.workgroup_counters and _is_counted(node):
        return None
    change = _reduced(node, target.heuristics)
    around = change is not None and not (_merged(node) or _is_whole(node))
    return _kept_first if around and _fills(node, target) else change


def _reduced(node: Node, limits: Heuristics) -> Callable[[Node], Node] | None:
    """Return what changes a reduction; None for any other node, too."""
    if node.op not in WHOLE | FINDS or near(prod(node.inputs[0].spec.shape)) < limits.split_min_elements:
        return None
    if node.op in WHOLE and _merged(node):
        return _apart
    if _is_whole(node):
        return partial(_places if node.op in FINDS else _rows_first, limits=limits)
    return partial(_last_first, limits=limits) if node.op in WHOLE and _is_around(node, limits) else None


def _is_counted(node: Node) -> bool:
    """Return whether groups share a reduction, and the last of them does the second step by itself."""
    return node.op in WHOLE | FINDS and _is_whole(node) and not _merged(node)


def _fills(node: Node, target: Target) -> bool:
    """Return whether a reduction has enough results for a workgroup each, none of which has too much to do.

    Workgroups that share a result unflatten every place: rows first are the faster then.
    """
    shape, over = node.inputs[0].spec.shape, node.attrs["axis"]
    results = near(prod([n for k, n in enumerate(shape) if k not in over]))
    length, limits = near(prod([shape[k] for k in over])), target.heuristics
    enough = results * target.max_workgroup >= target.work_items_to_fill // 2
    return enough and results <= target.workgroup_counters and length <= limits.workgroup_row_max_length


def _is_whole(node: Node) -> bool:
    return all(n == 1 or k in node.attrs["axis"] for k, n in enumerate(node.inputs[0].spec.shape))


def _is_around(node: Node, limits: Heuristics) -> bool:
    """Return whether a reduction goes over last axes that make long enough rows, and over earlier ones."""
    shape, over = node.inputs[0].spec.shape, node.attrs["axis"]
    last = _last(node)
    return (
        near(prod(shape[k] for k in last)) >= limits.split_min_inner_length
        and prod(shape[k] for k in over if k not in last) > 1
    )


def _last(node: Node) -> tuple[int, ...]:
    """Return the reduced axes that no kept one stands behind; those of length 1 stand nowhere."""
    shape = node.inputs[0].spec.shape
    remaining = [k for k, n in enumerate(shape) if n != 1 and k not in node.attrs["axis"]]
    return tuple(k for k in node.attrs["axis"] if k > max(remaining, default=-1))


def _flat(node: Node) -> Node:
    x, value, *indices = node.inputs
    shape = indices[0].spec.shape
    count = prod(shape)
    values = reshaped(value, (count, *value.spec.shape[len(shape) :]))
    return replace(node, inputs=(x, values, *(reshaped(i, (count,)) for i in indices)))


def _merged(node: Node) -> int:
    """Return how many last axes of windows were made the one that a reduction goes over; 0: none."""
    (x,) = node.inputs
    if x.op != "reshape" or x.inputs[0].op != "windows" or node.attrs["axis"] != (len(x.spec.shape) - 1,):
        return 0
    shape, remaining = x.inputs[0].spec.shape, x.spec.shape[:-1]
    return len(shape) - len(remaining) if shape[: len(remaining)] == remaining else 0


def _apart(node: Node) -> Node:
    """Return a reduction over the axes of windows, whose places nobody takes apart then."""
    x, count = node.inputs[0].inputs[0], _merged(node)
    rank = len(x.spec.shape)
    left, over = x.spec.shape[: rank - count], tuple(range(rank - count, rank))
    reduced = _new(node, node.op, x, spec=Spec(left, node.spec.dtype), axis=over, keepdims=False)
    return reduced if left == node.spec.shape else reshaped(reduced, node.spec.shape)


def _cut(x: Node, limits: Heuristics) -> Node | None:
    """Return the operand of a reduction of everything as rows; None where it cannot be cut into any."""
    count = prod(x.spec.shape)
    *outer, length = x.spec.shape
    if length >= limits.split_min_row_length and prod(outer) >= limits.split_min_rows:
        return x
    most = min(count // limits.split_min_row_length, limits.split_max_rows)
    for multiple in (limits.split_row_multiple, 1):
        for rows in range(most, limits.split_min_rows - 1, -1):
            if count % (rows * multiple) == 0:
                return reshaped(x, (rows, count // rows))
    return None


def _rows_first(node: Node, limits: Heuristics) -> Node:
    x = _cut(node.inputs[0], limits)
    return node if x is None else _twice(node, x, (len(x.spec.shape) - 1,), limits)


def _kept_first(node: Node) -> Node:
    """Return a reduction around axes that stay as one of the last axes of a view."""
    (x,), over = node.inputs, node.attrs["axis"]
    order = (*[k for k in range(len(x.spec.shape)) if k not in over], *over)
    shape = tuple([x.spec.shape[k] for k in order])
    view = _new(node, "permute_dims", x, spec=Spec(shape, x.spec.dtype), axes=order)
    results = shape[: len(shape) - len(over)]
    axes = tuple(range(len(results), len(shape)))
    result = _new(node, node.op, view, spec=Spec(results, node.spec.dtype), axis=axes, keepdims=False)
    return result if results == node.spec.shape else reshaped(result, node.spec.shape)


def _last_first(node: Node, limits: Heuristics) -> Node:
    return _twice(node, node.inputs[0], _last(node), limits)


def _twice(node: Node, x: Node, first: tuple[int, ...], limits: Heuristics) -> Node:
    """Return a reduction of ``x`` over the axes ``first`` and then over all else that ``node`` goes over.

    Sums of narrow floats are rounded once, at the end.
    """
    dtype = accumulator(x.spec.dtype) if node.op in ("sum", "prod") else x.spec.dtype
    if x.spec.dtype is not dtype:
        x = _new(node, "cast", x, spec=Spec(x.spec.shape, dtype), dtype=dtype)
    shape = x.spec.shape
    over = tuple(range(len(shape))) if _is_whole(node) else node.attrs["axis"]
    left = tuple(n for k, n in enumerate(shape) if k not in first)
    part = _new(node, node.op, x, spec=Spec(left, dtype), axis=first, keepdims=False)
    remaining = [k for k in range(len(shape)) if k not in first]
    rest = tuple(remaining.index(k) for k in over if k not in first)
    small = tuple(n for k, n in enumerate(shape) if k not in over)
    result = _new(node, node.op, part, spec=Spec(small, dtype), axis=rest, keepdims=False)
    rule = _reduced(result, limits)
    result = rule(result) if rule else result
    if dtype is not node.spec.dtype:
        result = _new(node, "cast", result, spec=Spec(small, node.spec.dtype), dtype=node.spec.dtype)
    return result if small == node.spec.shape else reshaped(result, node.spec.shape)


def _places(node: Node, limits: Heuristics) -> Node:
    """Return the search for a place in everything: in each row, and then for the first row that has it."""
    x = _cut(node.inputs[0], limits)
    if x is None:
        return node
    *_, length = x.spec.shape
    count = prod(x.spec.shape)
    rows = count // length
    x, dtype = reshaped(x, (rows, length)), x.spec.dtype
    op = "max" if node.op == "argmax" else "min"

    def over(op: str, of: Node, dtype: DType) -> Node:
        left = Spec(of.spec.shape[:-1], dtype)
        return _new(node, op, of, spec=left, axis=(len(left.shape),), keepdims=False)

    def each(op: str, *of: Node, dtype: DType, **attrs: Any) -> Node:
        return _new(node, op, *of, spec=Spec((rows,), dtype), **attrs)

    best = over(op, x, dtype)
    top = over(op, best, dtype)
    begins = each("iota", dtype=int64, length=rows, start=0, step=length)
    place = each("add", over(node.op, x, int64), begins, dtype=int64)
    hit = each("equal", best, top, dtype=bool_)
    if dtype.is_floating:
        lost = each("isnan", best, dtype=bool_), _new(node, "isnan", top, spec=Spec((), bool_))
        hit = each("logical_or", hit, each("logical_and", *lost, dtype=bool_), dtype=bool_)
    none = _new(node, "constant", spec=Spec((), int64), value=count)
    places = over("min", each("where", hit, place, none, dtype=int64), int64)
    return places if node.spec.shape == () else reshaped(places, node.spec.shape)


def _new(node: Node, op: str, *inputs: Node, spec: Spec, **attrs: Any) -> Node:
    return Node(op=op, inputs=inputs, attrs=attrs, spec=spec, recompute_tag=node.recompute_tag)
