"""Segments: rows reduced by the number of the segment that each belongs to; and one-hot rows.

The numbers may come in any order. Segments are as many as asked for; by default as many as the largest number
needs, which waits for the device.
"""

from __future__ import annotations

from math import prod as _product
from typing import Any

from ...dtypes import definition as dt
from ...errors import ArgumentError, DtypeError, ShapeError
from ..call_errors import with_form
from ..creation.creation import full, iota, ones_like, zeros
from ..elementwise.arithmetic import divide, floor_divide, maximum
from ..elementwise.where_cast import cast
from ..indexing.gather_scatter import check_mode, scatter
from ..indexing.take_along_axis import identity
from ..movement.movement import reshape
from .reduction import max


def _check_ids(name: str, ids: Any) -> None:
    if not ids.dtype.is_integer:
        raise DtypeError(f"{name}: the numbers must be integers, got {ids.dtype}.")


def _reduced(name: str, data: Any, ids: Any, count: int | None, mode: str) -> Any:
    _check_ids(name, ids)
    if len(ids.shape) != 1 or ids.shape != data.shape[:1]:
        raise ShapeError(
            f"{name}: one number for each row is needed, got shape {ids.shape} for data of shape"
            f" {data.shape}."
        )
    check_mode(name, mode, data.dtype)
    rows = _count(ids) if count is None else count
    if rows < 0:
        raise ArgumentError(f"{name}: num_segments must be >= 0, got {rows}.")
    start = full((rows, *data.shape[1:]), identity(mode, data.dtype), dtype=data.dtype, device=data.device)
    return scatter(start, data, ids, mode=mode)


def _count(ids: Any) -> int:
    return int(max(ids)) + 1 if ids.shape[0] else 0


@with_form
def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the sum of the rows of each segment; 0 for a segment without rows.

    ``segment_ids`` has one integer for each row of ``data``. Raises ``IndexingError`` for a number that is
    negative or not below ``num_segments``.

    >>> import tensorbus as tb
    >>> tb.segment_sum(tb.asarray([1.0, 2.0, 4.0]), tb.asarray([0, 1, 0])).tolist()
    [5.0, 2.0]
    """
    return _reduced("segment_sum", data, segment_ids, num_segments, "add")


@with_form
def segment_prod(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the product of the rows of each segment; 1 for a segment without rows."""
    return _reduced("segment_prod", data, segment_ids, num_segments, "multiply")


@with_form
def segment_max(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the largest elements of the rows of each segment; the lowest value for one without rows."""
    return _reduced("segment_max", data, segment_ids, num_segments, "max")


@with_form
def segment_min(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the smallest elements of the rows of each segment; the highest value for one without rows."""
    return _reduced("segment_min", data, segment_ids, num_segments, "min")


@with_form
def segment_mean(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the mean of the rows of each segment; 0 for a segment without rows. Of integers rounded down."""
    total = _reduced("segment_mean", data, segment_ids, num_segments, "add")
    none = zeros(total.shape[:1], dtype=dt.int64, device=data.device)
    sizes = maximum(scatter(none, ones_like(segment_ids, dtype=dt.int64), segment_ids, mode="add"), 1)
    each = reshape(cast(sizes, data.dtype), (total.shape[0], *(1,) * (len(total.shape) - 1)))
    return (floor_divide if data.dtype.is_integer else divide)(total, each)


@with_form
def one_hot(x: Any, /, num_classes: int = -1) -> Any:
    """Return an int64 row for each integer of ``x``: 1 at its place, 0 elsewhere.

    The rows are ``num_classes`` long; -1 is as long as the largest number needs, which waits for the device.
    Raises ``IndexingError`` for a number that is negative or not below ``num_classes``.

    >>> import tensorbus as tb
    >>> tb.one_hot(tb.asarray([0, 2])).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    _check_ids("one_hot", x)
    if num_classes < -1 or (num_classes == -1 and not x.size):
        raise ArgumentError(f"one_hot: num_classes must be given and >= 0, got {num_classes}.")
    flat = reshape(x, (_product(x.shape),))
    classes = _count(flat) if num_classes == -1 else num_classes
    none = zeros((flat.shape[0], classes), dtype=dt.int64, device=x.device)
    rows = iota(flat.shape[0], device=x.device)
    return reshape(scatter(none, ones_like(flat, dtype=dt.int64), rows, flat), (*x.shape, classes))
