"""Diagonals: taken out of a matrix, summed, or made into one. Names are PyTorch's."""

from __future__ import annotations

from typing import Any

from ...dtypes import definition as dt
from ...errors import ShapeError
from ...tracing.sym_int import index
from ..call_errors import with_form
from ..creation.creation import iota
from ..elementwise.comparison import equal
from ..elementwise.family import Operand
from ..elementwise.where_cast import where
from ..reduction.reduction import sum
from .movement import broadcast_to, normalize_axis, pad, permute_dims, reshape, slice


@with_form
def diagonal(x: Operand, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the elements of a diagonal of the matrices that ``axis1`` and ``axis2`` span, as a last axis.

    ``offset`` counts from the main diagonal, upwards if positive. Raises ``ShapeError`` for fewer than two
    dimensions or one axis twice.

    >>> import tensorbus as tb
    >>> tb.diagonal(tb.asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    offset, rank = index(offset), len(x.shape)
    a, b = (normalize_axis("diagonal", axis, rank) for axis in (axis1, axis2))
    if a == b:
        raise ShapeError(f"diagonal: axes {axis1} and {axis2} of shape {x.shape} must differ.")
    last = permute_dims(x, (*(k for k in range(rank) if k not in (a, b)), a, b))
    *lead, rows, columns = last.shape
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = offset if offset >= 0 else -offset * columns
    none, one = (0,) * len(lead), (1,) * len(lead)
    flat = reshape(last, (*lead, rows * columns))
    first = start if length else 0
    return slice(flat, (*none, first), (*lead, length), (*one, columns + 1))


def trace(x: Operand, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the sum along a diagonal of the matrices that ``axis1`` and ``axis2`` span."""
    return sum(diagonal(x, offset, axis1, axis2), axis=-1)


def diag_embed(x: Operand, /, offset: int = 0) -> Any:
    """Return square matrices with the last axis of ``x`` on a diagonal, and zeros elsewhere.

    >>> import tensorbus as tb
    >>> tb.diag_embed(tb.asarray([1, 2])).tolist()
    [[1, 0], [0, 2]]
    """
    if not x.shape:
        raise ShapeError("diag_embed: a 0-dimensional tensor has no axis; reshape it to (1,) first.")
    offset = index(offset)
    *lead, length = x.shape
    side = length + abs(offset)
    none = (0,) * len(lead)
    long = pad(x, (*none, max(-offset, 0)), (*none, max(offset, 0)))
    rows = reshape(iota(side, device=x.device), (side, 1))
    hit = equal(iota(side, device=x.device) - rows, offset)
    spread = broadcast_to(reshape(long, (*lead, side, 1)), (*lead, side, side))
    return where(hit, spread, False if x.dtype is dt.bool_ else 0)


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
