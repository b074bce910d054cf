"""Diagonals: taken out of a matrix, summed, or made into one. Names are PyTorch's."""

from __future__ import annotations

from typing import Any

from ...dtypes import definition as dt
from ...errors import ShapeError
from ...tracing.sym_int import index
from ..call_errors import with_form
from ..creation.creation import iota
from ..definition import Shape, table
from ..elementwise.comparison import equal
from ..elementwise.family import Operand
from ..elementwise.where_cast import where
from ..reduction.reduction import sum
from .family import normalize_axis
from .movement import broadcast_to, moveaxis, pad, permute_dims, reshape, slice


@with_form
def diagonal(x: Operand, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the elements of a diagonal of the matrices that ``axis1`` and ``axis2`` span, as a last axis.

    ``offset`` counts from the main diagonal, upwards if positive. Raises ``ShapeError`` for fewer than two
    dimensions or one axis twice. The result is a view of ``x``.

    >>> import tensorbus as tb
    >>> tb.diagonal(tb.asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    order, (start, size, step) = diagonal_box("diagonal", x, offset, axis1, axis2)
    last = permute_dims(x, order)
    shape = (*last.shape[:-2], last.shape[-2] * last.shape[-1])
    flat = table.link(reshape(last, shape), last, "reshape", shape=shape)  # in whatever order they lie
    return slice(flat, start, size, step)


def diagonal_box(
    name: str, x: Any, offset: int, axis1: int, axis2: int
) -> tuple[tuple[int, ...], tuple[Shape, Shape, Shape]]:
    """Return the order of axes that brings the matrices last, and the diagonal as a box of them made flat."""
    offset, rank = index(offset), len(x.shape)
    a, b = (normalize_axis(name, axis, rank) for axis in (axis1, axis2))
    if a == b:
        raise ShapeError(f"{name}: axes {axis1} and {axis2} of shape {x.shape} must differ.")
    order = (*(k for k in range(rank) if k not in (a, b)), a, b)
    *lead, rows, columns = (x.shape[k] for k in order)
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = offset if offset >= 0 else -offset * columns
    none, one = (0,) * len(lead), (1,) * len(lead)
    return order, ((*none, start if length else 0), (*lead, length), (*one, columns + 1))


@with_form
def trace(x: Operand, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the sum along a diagonal of the matrices that ``axis1`` and ``axis2`` span."""
    return sum(diagonal(x, offset, axis1, axis2), axis=-1)


@with_form
def diag_embed(x: Operand, /, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """Return matrices with the last axis of ``x`` on a diagonal, and zeros elsewhere.

    The square matrices that it makes lie along ``axis1`` and ``axis2`` of the result. Raises ``ShapeError``
    where these are one axis, or ``x`` has none.

    >>> import tensorbus as tb
    >>> tb.diag_embed(tb.asarray([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """
    if not x.shape:
        raise ShapeError("diag_embed: a 0-dimensional tensor has no axis; reshape it to (1,) first.")
    offset = index(offset)
    *lead, length = x.shape
    rank = len(lead) + 2
    a, b = (normalize_axis("diag_embed", axis, rank) for axis in (axis1, axis2))
    if a == b:
        raise ShapeError(f"diag_embed: axes {axis1} and {axis2} of the result must differ.")
    side = length + abs(offset)
    none = (0,) * len(lead)
    long = pad(x, (*none, max(-offset, 0)), (*none, max(offset, 0)))
    rows = reshape(iota(side, device=x.device), (side, 1))
    hit = equal(iota(side, device=x.device) - rows, offset)
    spread = broadcast_to(reshape(long, (*lead, side, 1)), (*lead, side, side))
    matrices = where(hit, spread, False if x.dtype is dt.bool_ else 0)
    return matrices if (a, b) == (rank - 2, rank - 1) else moveaxis(matrices, (-2, -1), (a, b))


@with_form
def diagflat(x: Operand, /, offset: int = 0) -> Any:
    """Return the matrix that has the elements of ``x``, in C order, on a diagonal.

    >>> import tensorbus as tb
    >>> tb.diagflat(tb.asarray([[1, 2]])).tolist()
    [[1, 0], [0, 2]]
    """
    return diag_embed(reshape(x, (x.size,)), offset)


@with_form
def diag(x: Operand, /, offset: int = 0) -> Any:
    """Return the diagonal of a matrix, or the matrix whose diagonal is a 1-dimensional tensor.

    >>> import tensorbus as tb
    >>> tb.diag(tb.diag(tb.asarray([1, 2]), 1), 1).tolist()
    [1, 2]
    """
    if len(x.shape) not in (1, 2):
        raise ShapeError(f"diag: needs 1 or 2 dimensions, got shape {x.shape}; use diagonal or diag_embed.")
    return diag_embed(x, offset) if len(x.shape) == 1 else diagonal(x, offset)
