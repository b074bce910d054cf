"""References of sorting, searching, running extremes, and reading and writing along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..native import Array
from .movement import COMBINE
from .reference import Reference


def key(value: Any) -> tuple[bool, Any]:
    """Return what values are compared by: NaN is behind all numbers."""
    return (value != value, 0 if value != value else value)


def _sort(x: Array, axis: int, descending: bool) -> Array:
    ordered = np.sort(x, axis=axis)
    return np.flip(ordered, axis) if descending else ordered


def _argsort(x: Array, axis: int, descending: bool, **_: Any) -> Array:
    """Sort row by row with Python's stable sort."""
    rows = np.moveaxis(x, axis, -1)
    order = np.empty(rows.shape, np.int64)
    for at in np.ndindex(*rows.shape[:-1]):
        keys = [key(v) for v in rows[at].tolist()]
        order[at] = sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)
    return np.moveaxis(order, -1, axis)


def _argsort_part(x: Array, axis: int, start: int, count: int, descending: bool) -> Array:
    return np.take(_argsort(x, axis, descending), range(start, start + count), axis)


def _places(indices: Array, length: int) -> Array:
    return np.where(indices < 0, indices + length, indices).astype(np.int64)


def _take(x: Array, indices: Array, axis: int) -> Array:
    return np.take_along_axis(x, _places(indices, x.shape[axis]), axis)


def _put(x: Array, indices: Array, values: Array, axis: int, mode: str) -> Array:
    out, where = x.copy(), _places(indices, x.shape[axis])
    for at in np.ndindex(*where.shape):
        place = (*at[:axis], int(where[at]), *at[axis + 1 :])
        out[place] = COMBINE[mode](out[place], values[at])
    return out


def _search(line: Array, values: Array, side: str) -> Array:
    """Count, one by one, what stands before each value."""
    positions = np.zeros(values.shape, np.int64)
    for at in np.ndindex(*values.shape):
        row = line[at[:-1]] if line.ndim > 1 else line
        mine = key(values[at])
        positions[at] = sum(key(v) < mine or (side == "right" and key(v) == mine) for v in row)
    return positions


def _size(x: Array, *_: Any, **__: Any) -> Any:
    return np.max(np.abs(np.where(np.isfinite(x), x, 0)), initial=1.0)


def _products(x: Array, indices: Array, values: Array, axis: int, mode: str) -> Any:
    return 64.0 if mode != "multiply" else 2.0**14


REFERENCES: dict[str, Reference] = {
    "sort": Reference(function=_sort), "argsort": Reference(function=_argsort),
    "argsort_part": Reference(function=_argsort_part),
    "cumulative_max": Reference(function=lambda x, axis, **_: np.maximum.accumulate(x, axis=axis)),
    "cumulative_min": Reference(function=lambda x, axis, **_: np.minimum.accumulate(x, axis=axis)),
    "logcumsumexp": Reference(
        function=lambda x, axis, **_: np.logaddexp.accumulate(x, axis=axis), ulps=16, scale=_size
    ),
    "take_along_axis": Reference(function=_take, exact=True),
    "scatter_along_axis": Reference(function=_put, ulps=16, scale=_products),
    "searchsorted": Reference(function=_search),
}  # fmt: skip
