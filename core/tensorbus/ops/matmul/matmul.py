"""Matrix products. Array API standard 2025.12, section "Linear Algebra Functions"."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes.definition import NUMERIC, DType
from ...dtypes.promotion import common_dtype
from ...errors import ShapeError
from .. import sharding_rules
from ..batching_rules import aligned
from ..call_errors import with_form
from ..definition import Op, Shape, Spec, table
from ..elementwise.arithmetic import conj
from ..elementwise.family import Operand, broadcast_in, broadcast_shapes, fit
from ..movement.family import normalize_axis
from ..movement.movement import moveaxis, permute_dims, reshape, sum_to

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def _infer(specs: tuple[Spec, ...]) -> Spec:
    x, y = specs
    if len(x.shape) < 2 or len(y.shape) < 2 or x.shape[-1] != y.shape[-2]:
        raise ShapeError(
            f"matmul: shapes {x.shape} and {y.shape} do not fit; the last axis of the first must have the"
            f" length of the last but one of the second."
        )
    lead = broadcast_in("matmul", (x.shape, y.shape), (x.shape[:-2], y.shape[:-2]))
    return Spec((*lead, x.shape[-2], y.shape[-1]), x.dtype)


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit("matmul", common_dtype(operand_dtypes), NUMERIC),) * 2


@with_form
def matrix_transpose(x: Any, /) -> Any:
    """Return ``x`` with its last two axes exchanged. Raises ``ShapeError`` for fewer than two."""
    rank = len(x.shape)
    if rank < 2:
        raise ShapeError(f"matrix_transpose: at least 2 dimensions are needed, got shape {x.shape}.")
    return permute_dims(x, (*range(rank - 2), rank - 1, rank - 2))


def _vjp(g: Any, x: Any, y: Any, wanted: tuple[bool, bool]) -> tuple[Any, ...]:
    dx = sum_to(product(g, conj(matrix_transpose(y))), x.shape) if wanted[0] else None
    if not wanted[1]:
        return dx, None
    if len(y.shape) == 2 < len(x.shape):  # one product over all rows, not one for each matrix and their sum
        rows = prod(x.shape[:-1])
        x, g = reshape(x, (rows, x.shape[-1])), reshape(g, (rows, g.shape[-1]))
    return dx, sum_to(product(conj(matrix_transpose(x)), g), y.shape)


def _arguments(x: Operand, y: Operand, /) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x, y), {}


product = table.add(
    Op(
        name="matmul",
        family="matmul",
        operands=("x", "y"),
        arguments=_arguments,
        infer=_infer,
        compute=_compute,
        vjp=_vjp,
        may_overwrite=lambda shapes: ("y",) if len(shapes[0]) <= 2 < len(shapes[1]) else (),
        jvp="multilinear",
        batch=aligned("matmul"),
        shard=sharding_rules.matmul,
        dtypes=NUMERIC,
        autocast="narrow",
        doc="The matrix product over the last two axes; the axes before them broadcast.",
    )
)


@with_form
def matmul(x: Tensor, y: Tensor, /) -> Tensor:
    """Return the matrix product; a 1-dimensional operand is a row on the left, a column on the right.

    Shapes ``(..., m, k)`` and ``(..., k, n)`` give ``(..., m, n)``. Raises ``ShapeError`` where they do not
    fit.

    >>> import tensorbus as tb
    >>> tb.matmul(tb.asarray([1.0, 2.0]), tb.asarray([3.0, 4.0])).item()
    11.0
    """
    ranks = (len(getattr(x, "shape", ())), len(getattr(y, "shape", ())))
    if ranks[0] > 1 and ranks[1] > 1:
        return product(x, y)
    if 0 in ranks:
        raise ShapeError(
            f"matmul: both operands need at least 1 dimension, got shapes"
            f" {getattr(x, 'shape', ())} and {getattr(y, 'shape', ())}; use multiply for scalars."
        )
    left = reshape(x, (1, x.shape[0])) if ranks[0] == 1 else x
    right = reshape(y, (y.shape[0], 1)) if ranks[1] == 1 else y
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(f"matmul: shapes {x.shape} and {y.shape} do not fit.")
    out = product(left, right)
    *batch, rows, columns = out.shape
    shape = batch + ([] if ranks[0] == 1 else [rows]) + ([] if ranks[1] == 1 else [columns])
    return reshape(out, tuple(shape))


@with_form
def tensordot(x: Tensor, y: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the product of ``x`` and ``y`` summed over pairs of axes, or over the last/first ``axes``.

    The result has the axes of ``x`` that are left, then those of ``y``. Raises ``ShapeError`` where the axes
    do not pair up.

    >>> import tensorbus as tb
    >>> tb.tensordot(tb.ones((2, 3)), tb.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    over_x, over_y = _paired(x.shape, y.shape, axes)
    rest_x = [a for a in range(len(x.shape)) if a not in over_x]
    rest_y = [a for a in range(len(y.shape)) if a not in over_y]
    inner = prod(x.shape[a] for a in over_x)
    rows, columns = prod(x.shape[a] for a in rest_x), prod(y.shape[a] for a in rest_y)
    left = reshape(permute_dims(x, (*rest_x, *over_x)), (rows, inner))
    right = reshape(permute_dims(y, (*over_y, *rest_y)), (inner, columns))
    return reshape(product(left, right), (*(x.shape[a] for a in rest_x), *(y.shape[a] for a in rest_y)))


def _paired(x: Shape, y: Shape, axes: Any) -> tuple[Shape, Shape]:
    if hasattr(axes, "__index__"):
        count = axes.__index__()
        if not 0 <= count <= min(len(x), len(y)):
            raise ShapeError(f"tensordot: shapes {x} and {y} do not have {count} axes each to sum over.")
        over_x, over_y = tuple(range(len(x) - count, len(x))), tuple(range(count))
    else:
        first, second = axes
        over_x = tuple(normalize_axis("tensordot", a, len(x)) for a in first)
        over_y = tuple(normalize_axis("tensordot", a, len(y)) for a in second)
    repeated = len(set(over_x)) != len(over_x) or len(set(over_y)) != len(over_y)
    if repeated or [x[a] for a in over_x] != [y[a] for a in over_y]:
        raise ShapeError(
            f"tensordot: axes {axes} of shapes {x} and {y} do not pair up: as many distinct axes of both are"
            f" needed, with equal lengths."
        )
    return over_x, over_y


@with_form
def vecdot(x: Tensor, y: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the dot products of vectors along ``axis``; those of ``x`` are conjugated.

    ``axis`` counts from the back, unless both have the same rank; along it both have the same length, the
    other axes broadcast. The result has the dtype that both promote to. Raises ``ShapeError`` otherwise.

    >>> import tensorbus as tb
    >>> tb.vecdot(tb.asarray([[1.0, 2.0], [0.0, 1.0]]), tb.asarray([3.0, 4.0])).tolist()
    [11.0, 4.0]
    """
    check_vectors("vecdot", x.shape, y.shape, axis)
    rows, columns = moveaxis(conj(x), axis, -1), moveaxis(y, axis, -1)
    rows = reshape(rows, (*rows.shape[:-1], 1, rows.shape[-1]))
    out = product(rows, reshape(columns, (*columns.shape, 1)))
    return reshape(out, out.shape[:-2])


def check_vectors(name: str, x: Shape, y: Shape, axis: int, length: int | None = None) -> None:
    """Raise ``ShapeError`` unless both shapes have the axis, with the same length (or ``length``)."""
    n, m = x[normalize_axis(name, axis, len(x))], y[normalize_axis(name, axis, len(y))]
    if axis >= 0 and len(x) != len(y):
        raise ShapeError(
            f"{name}: axis {axis} means different axes of shapes {x} and {y}; count it from the back, as a"
            f" negative number."
        )
    if n != m or (length is not None and n != length):
        raise ShapeError(
            f"{name}: the vectors along axis {axis} of shapes {x} and {y} have {n} and {m} elements; both"
            f" need {'the same number' if length is None else length}."
        )
    broadcast_shapes(x, y)
