"""Distinct parts of a tensor along an axis, and runs of equal ones. Names and results are PyTorch's.

All of them wait for the device, because lengths depend on values. NaNs are distinct from each other.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...dtypes import definition as dt
from ..call_errors import with_form
from ..creation.creation import full, iota, ones, zeros
from ..definition import table
from ..elementwise.comparison import not_equal
from ..indexing.gather_scatter import gather
from ..indexing.nonzero import flatnonzero
from ..indexing.take_along_axis import scatter_along_axis
from ..movement.family import normalize_axis
from ..movement.movement import concat, moveaxis, reshape
from ..reduction.reduction import any as any_
from ..reduction.scan import cut, sum_scan
from .sorting import argsort


def _rows(name: str, x: Any, axis: int | None) -> tuple[Any, int]:
    """Return the parts of ``x`` along ``axis`` as rows, and the axis; single elements where it is None."""
    if axis is None:
        return reshape(x, (x.size, 1)), 0
    place = normalize_axis(name, axis, len(x.shape))
    first = moveaxis(x, place, 0)
    return reshape(first, (first.shape[0], prod(first.shape[1:]))), place


def _lexicographic(rows: Any) -> Any:
    """Return the indices that sort the rows of a matrix: the last column first, each sort keeping ties."""
    order = iota(rows.shape[0], device=rows.device)
    for k in reversed(range(rows.shape[1])):
        column = reshape(cut(rows, 1, k, k + 1), (rows.shape[0],))
        parts = (table["imag"](column), table["real"](column)) if rows.dtype.is_complex else (column,)
        for part in parts:
            order = gather(order, argsort(gather(part, order)))
    return order


def _starts(rows: Any) -> Any:
    """Return which rows are not equal to the one before."""
    count = rows.shape[0]
    first = ones((min(count, 1),), dtype=dt.bool_, device=rows.device)
    if count < 2:
        return first
    changed = any_(not_equal(cut(rows, 0, 1, count), cut(rows, 0, 0, count - 1)), axis=1)
    return concat([first, changed])


def _grouped(x: Any, rows: Any, order: Any, axis: int | None, place: int, inverse: bool, counts: bool) -> Any:
    """Return the first of each run of equal rows, taken in ``order``, and what else is asked for."""
    start = _starts(rows if order is None else gather(rows, order))
    heads, count = flatnonzero(start), rows.shape[0]
    taken = heads if order is None else gather(order, heads)
    line = reshape(x, (x.size,)) if axis is None else moveaxis(x, place, 0)
    values = gather(line, taken)
    results = [values if axis is None else moveaxis(values, 0, place)]
    if inverse:
        group = sum_scan(start) - 1
        if order is not None:
            none = zeros((count,), dtype=dt.int64, device=x.device)
            group = scatter_along_axis(none, order, group, axis=0)
        results.append(reshape(group, x.shape) if axis is None else group)
    if counts:
        ends = concat([heads, full((1,), count, dtype=dt.int64, device=x.device)])
        groups = heads.shape[0]
        results.append(cut(ends, 0, 1, groups + 1) - cut(ends, 0, 0, groups))
    return results[0] if len(results) == 1 else tuple(results)


@with_form
def unique(
    x: Any, /, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None,
) -> Any:  # fmt: skip
    """Return the distinct elements of ``x``, or its distinct parts along ``axis``, in ascending order.

    With ``return_inverse`` follows which of them each element (each part) is, with ``return_counts`` how
    often each occurs, as int64 in one tuple. Parts are ordered by their first elements that differ. They are
    in order whatever ``sorted`` says. ``unique_values`` and its kin are the array API standard's.

    >>> import tensorbus as tb
    >>> tb.unique(tb.asarray([[2, 1], [1, 9], [2, 1]]), axis=0).tolist()
    [[1, 9], [2, 1]]
    >>> values, counts = tb.unique(tb.asarray([3, 1, 3]), return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([1, 3], [1, 2])
    """
    rows, place = _rows("unique", x, axis)
    return _grouped(x, rows, _lexicographic(rows), axis, place, return_inverse, return_counts)


@with_form
def unique_consecutive(
    x: Any, /, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
) -> Any:
    """Return ``x`` with the first element (or part along ``axis``) of each run of equal ones only.

    ``return_inverse`` and ``return_counts`` are as in ``unique``.

    >>> import tensorbus as tb
    >>> tb.unique_consecutive(tb.asarray([1, 1, 2, 1])).tolist()
    [1, 2, 1]
    """
    rows, place = _rows("unique_consecutive", x, axis)
    return _grouped(x, rows, None, axis, place, return_inverse, return_counts)
