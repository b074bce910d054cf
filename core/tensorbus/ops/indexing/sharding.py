"""Sharding rules of ops that read and write by indices.

Where the axes that indices point along are split, a rank reads or stores what its part has: what others read
is zero here, a term of a sum, and what others store is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..definition import Spec, table
from ..sharding_rules import ANY, ShardPart, Specs, Strategies, Strategy, linear_reductions


def gather(operands: Specs, results: Sequence[Spec], **_: Any) -> Strategies:
    """The rule of ``gather``: parts of the indices, of the rows, or of each row."""
    x, *indices = operands
    rank, count = len(indices[0].shape), len(indices)
    for axis in range(rank):
        yield Strategy((None, *(axis,) * count), (axis,), run=_gather_part)
    for axis in range(count, len(x.shape)):
        yield Strategy((axis, *(None,) * count), (rank + axis - count,), run=_gather_part)
    if linear_reductions(x.dtype):
        for axis in range(count):
            yield Strategy((axis, *(None,) * count), ("sum",), run=_gather_part)
    for name in ANY:
        yield Strategy((name, *(None,) * count), (name,), run=_gather_part)


def _gather_part(
    xs: Sequence[Any], attrs: Any, parts: Sequence[ShardPart], results: Sequence[ShardPart]
) -> Any:
    """Read the rows that are here; those that others have are zeros."""
    (x, *indices), part = xs, parts[0]
    if part.shape[: len(indices)] == part.whole[: len(indices)]:
        return None
    if 0 in part.shape[: len(indices)]:
        return table["full"](results[0].shape, 0, dtype=x.dtype, device=x.device)
    here, at = _local_indices(indices, part)
    rows = table["gather"](x, *at)
    tail = (1,) * (len(rows.shape) - len(here.shape))
    return table["where"](table["reshape"](here, (*here.shape, *tail)), rows, 0)


def _local_indices(indices: Sequence[Any], part: ShardPart, beyond: bool = False) -> tuple[Any, list[Any]]:
    """Return which of the indices point to a rank's part, and where in it.

    The others point to its start, or ``beyond`` it, along the axes that are split; those out of the range of
    the whole stay as they are, so that the op on the part refuses them.
    """
    here: Any = None
    at = []
    for axis, index in enumerate(indices):
        n, whole, start = part.shape[axis], part.whole[axis], part.start[axis]
        wide = table["cast"](index, _int64())
        if n == whole:
            at.append(wide)
            continue
        place = wide - start
        inside = _in_range(place, n)
        here = inside if here is None else table["logical_and"](here, inside)
        elsewhere = table["where"](_in_range(wide, whole), n if beyond else 0, wide)
        at.append(table["where"](inside, place, elsewhere))
    return here, at


def _in_range(index: Any, n: int) -> Any:
    """Return which of the indices point along an axis of ``n``."""
    return table["logical_and"](table["greater_equal"](index, 0), table["less"](index, n))


def _from_front(indices: Any, length: int) -> Any:
    """Return indices along an axis, with those below 0 counted from its end."""
    from .gather_scatter import from_front

    return from_front(indices, length)


def _int64() -> Any:
    from ...dtypes.definition import int64

    return int64


def scatter(operands: Specs, results: Sequence[Spec], *, mode: str) -> Strategies:
    """The rule of ``scatter``: as ``gather``; parts of the values make terms of what they are added to."""
    x, _, *indices = operands
    rank, count = len(indices[0].shape), len(indices)
    for axis in range(count, len(x.shape)):
        yield Strategy((axis, rank + axis - count, *(None,) * count), (axis,), run=_scatter_part)
    for axis in range(count):
        yield Strategy((axis, None, *(None,) * count), (axis,), run=_scatter_part)
    if mode == "add" and x.dtype.kind != "bool":
        for axis in range(rank):
            yield Strategy(("sum", axis, *(axis,) * count), ("sum",), run=_scatter_part)
        yield Strategy(("sum", "sum", *(None,) * count), ("sum",), run=_scatter_part)


def _scatter_part(
    xs: Sequence[Any], attrs: Any, parts: Sequence[ShardPart], results: Sequence[ShardPart]
) -> Any:
    """Store what belongs here; the rest goes to one more row along split axes, which is cut off again."""
    (x, value, *indices), part = xs, parts[0]
    count = len(indices)
    if part.shape[:count] == part.whole[:count]:
        return None
    _, at = _local_indices(indices, part, beyond=True)
    rank = len(x.shape)
    more = tuple(int(axis < count and part.shape[axis] != part.whole[axis]) for axis in range(rank))
    wide = table["pad"](x, (0,) * rank, more)
    out = table["scatter"](wide, value, *at, **attrs)
    return table["slice"](out, (0,) * rank, x.shape, (1,) * rank)


def take_along_axis(operands: Specs, results: Sequence[Spec], *, axis: int) -> Strategies:
    """The rule of ``take_along_axis``."""
    x, indices = operands
    for place, n in enumerate(x.shape):
        if place != axis and indices.shape[place] == n:
            yield Strategy((place, place), (place,), run=_take_part)
    yield Strategy((None, axis), (axis,), run=_take_part)
    if linear_reductions(x.dtype):
        yield Strategy((axis, None), ("sum",), run=_take_part)
    for name in ANY:
        yield Strategy((name, None), (name,), run=_take_part)


def _take_part(
    xs: Sequence[Any], attrs: Any, parts: Sequence[ShardPart], results: Sequence[ShardPart]
) -> Any:
    (x, indices), part, axis = xs, parts[0], attrs["axis"]
    if part.shape[axis] == part.whole[axis]:
        return None
    if not part.shape[axis]:
        return table["full"](results[0].shape, 0, dtype=x.dtype, device=x.device)
    own = ShardPart((part.shape[axis],), (part.start[axis],), (part.whole[axis],))
    here, (at,) = _local_indices([_from_front(indices, part.whole[axis])], own)
    return table["where"](here, table["take_along_axis"](x, at, axis=axis), 0)


def scatter_along_axis(operands: Specs, results: Sequence[Spec], *, axis: int, mode: str) -> Strategies:
    """The rule of ``scatter_along_axis``."""
    x, indices, _ = operands
    for place, n in enumerate(x.shape):
        if place != axis and indices.shape[place] == n:
            yield Strategy((place,) * 3, (place,), run=_put_part)
    yield Strategy((axis, None, None), (axis,), run=_put_part)
    if mode == "add" and x.dtype.kind != "bool":
        yield Strategy(("sum", axis, axis), ("sum",), run=_put_part)
        yield Strategy(("sum", None, "sum"), ("sum",), run=_put_part)


def _put_part(xs: Sequence[Any], attrs: Any, parts: Sequence[ShardPart], results: Sequence[ShardPart]) -> Any:
    (x, indices, values), part, axis = xs, parts[0], attrs["axis"]
    if part.shape[axis] == part.whole[axis]:
        return None
    n, rank = part.shape[axis], len(x.shape)
    own = ShardPart((n,), (part.start[axis],), (part.whole[axis],))
    _, (at,) = _local_indices([_from_front(indices, part.whole[axis])], own, beyond=True)
    wide = table["pad"](x, (0,) * rank, tuple(int(k == axis) for k in range(rank)))
    out = table["scatter_along_axis"](wide, at, values, **attrs)
    return table["slice"](out, (0,) * rank, x.shape, (1,) * rank)
