"""Diagonals: taken out of a matrix, summed, or made into one. Names are PyTorch's."""

from __future__ import annotations

from typing import Any, Final

from ...dtypes import definition as dt
from ...errors import ShapeError
from ...tracing.sym_int import index
from .. import sharding_rules
from ..batching_rules import unchanged
from ..call_errors import with_form
from ..creation.creation import iota
from ..definition import Op, Shape, Spec, ViewRule, table
from ..elementwise.comparison import equal
from ..elementwise.family import Operand
from ..elementwise.where_cast import where
from ..reduction.reduction import sum
from .family import movement, normalize_axis
from .movement import broadcast_to, moveaxis, pad, permute_dims, reshape, slice, slice_update


def diagonal_shape(shape: Shape, offset: int) -> Shape:
    """Return the shape of a diagonal of the matrices of the last two axes."""
    if len(shape) < 2:
        raise ShapeError(f"diagonal: at least 2 dimensions are needed, got shape {shape}.")
    *lead, rows, columns = shape
    length = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    return (*lead, max(length, 0))


_FARTHEST: Final = 2**31 - 1
"""An offset up to which nothing is asked: one that is beyond the matrix gives the same as any other."""


def _box(shape: Shape, offset: int) -> tuple[Shape, Shape, Shape]:
    """Return the diagonal as a box, start, size and step, of the matrices made flat."""
    columns, size = shape[-1], diagonal_shape(shape, offset)
    start = (offset if offset >= 0 else -offset * columns) if size[-1] else 0
    lead = len(size) - 1
    return ((0,) * lead + (start,), size, (1,) * lead + (columns + 1,))


def _flat(x: Any) -> Any:
    return reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def with_diagonal(x: Any, value: Any, offset: int) -> Any:
    """Return matrices with a diagonal replaced."""
    start, _, step = _box(x.shape, offset)
    return reshape(slice_update(_flat(x), value, start, step), x.shape)


def _zeros(shape: Shape, g: Any) -> Any:
    return table["full"](shape, 0, dtype=g.dtype, device=g.device)


_diagonal: Op[...] = movement(
    "diagonal",
    arguments=lambda x, /, offset: ((x,), {"offset": offset}),
    infer=lambda specs, offset: Spec(diagonal_shape(specs[0].shape, offset), specs[0].dtype),
    decompose=lambda x, offset: slice(_flat(x), *_box(x.shape, offset)),
    vjp=lambda g, x_shape, offset: (with_diagonal(_zeros(x_shape, g), g, offset),),
    batch=unchanged("diagonal"),
    shard=sharding_rules.batched(2),
    view=ViewRule(
        put=lambda base, value, own, /, offset: with_diagonal(base, value, offset),
        partial=True,
        strides=lambda strides, own, /, offset: (*strides[:-2], strides[-2] + strides[-1]),
        apart=lambda one, other: one["offset"] != other["offset"],
    ),
    doc="The elements ``(k, k + offset)`` of the matrices of the last two axes, as a view.",
)


@with_form
def diagonal(x: Operand, /, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return the elements of a diagonal of the matrices that ``axis1`` and ``axis2`` span, as a last axis.

    ``offset`` counts from the main diagonal, upwards if positive. Raises ``ShapeError`` for fewer than two
    dimensions or one axis twice. The result is a view of ``x``.

    >>> import tensorbus as tb
    >>> tb.diagonal(tb.asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    offset, order = index(offset), matrices_last("diagonal", x, axis1, axis2)
    if abs(offset) > _FARTHEST:  # which some devices cannot count
        longest = max(_FARTHEST, *[n for n in x.shape if type(n) is int])
        offset = min(max(offset, -longest), longest)
    return _diagonal(permute_dims(x, order), offset)


def matrices_last(name: str, x: Any, axis1: int, axis2: int) -> tuple[int, ...]:
    """Return the order of axes that brings those of the matrices last."""
    rank = len(x.shape)
    a, b = (normalize_axis(name, axis, rank) for axis in (axis1, axis2))
    if a == b:
        raise ShapeError(f"{name}: axes {axis1} and {axis2} of shape {x.shape} must differ.")
    return (*(k for k in range(rank) if k not in (a, b)), a, b)


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
