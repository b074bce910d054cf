"""Matrix products. Array API standard 2025.12, section "Linear Algebra Functions"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..dtypes import NUMERIC, DType
from ..errors import ShapeError
from .arithmetic import conj
from .elementwise import Operand, broadcast_shapes, common_dtype, fit
from .movement import normalize_axis, permute_dims, reshape, sum_to
from .op import Op, Spec, table

if TYPE_CHECKING:
    from ..tensor import Tensor


def _infer(specs: tuple[Spec, ...]) -> Spec:
    x, y = specs
    if len(x.shape) < 2 or len(y.shape) < 2 or x.shape[-1] != y.shape[-2]:
        raise ShapeError(
            f"matmul: shapes {x.shape} and {y.shape} do not fit; the last axis of the first must have the"
            f" length of the last but one of the second."
        )
    return Spec((*broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]), x.dtype)


def _compute(given: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit("matmul", common_dtype(given), NUMERIC),) * 2


def matrix_transpose(x: Any, /) -> Any:
    """Return ``x`` with its last two axes exchanged. Raises ``ShapeError`` for fewer than two."""
    rank = len(x.shape)
    if rank < 2:
        raise ShapeError(f"matrix_transpose: at least 2 dimensions are needed, got shape {x.shape}.")
    return permute_dims(x, (*range(rank - 2), rank - 1, rank - 2))


def _vjp(g: Any, x: Any, y: Any, wanted: tuple[bool, bool]) -> tuple[Any, ...]:
    return (
        sum_to(_product(g, conj(matrix_transpose(y))), x.shape) if wanted[0] else None,
        sum_to(_product(conj(matrix_transpose(x)), g), y.shape) if wanted[1] else None,
    )


def _arguments(x: Operand, y: Operand, /) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x, y), {}


_product = table.add(
    Op(
        name="matmul",
        family="matmul",
        operands=("x", "y"),
        arguments=_arguments,
        infer=_infer,
        compute=_compute,
        vjp=_vjp,
        dtypes=NUMERIC,
        doc="The matrix product over the last two axes; the axes before them broadcast.",
    )
)


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
        return _product(x, y)
    if 0 in ranks:
        raise ShapeError(
            f"matmul: both operands need at least 1 dimension, got shapes"
            f" {getattr(x, 'shape', ())} and {getattr(y, 'shape', ())}; use multiply for scalars."
        )
    left = reshape(x, (1, x.shape[0])) if ranks[0] == 1 else x
    right = reshape(y, (y.shape[0], 1)) if ranks[1] == 1 else y
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(f"matmul: shapes {x.shape} and {y.shape} do not fit.")
    out = _product(left, right)
    *batch, rows, columns = out.shape
    shape = batch + ([] if ranks[0] == 1 else [rows]) + ([] if ranks[1] == 1 else [columns])
    return reshape(out, tuple(shape))


def tensordot(x: Tensor, y: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the product of ``x`` and ``y`` summed over pairs of axes, or over the last/first ``axes``."""
    if isinstance(axes, int):
        if not 0 <= axes <= min(len(x.shape), len(y.shape)):
            raise ShapeError(
                f"tensordot: shapes {x.shape} and {y.shape} do not have {axes} axes each to sum over."
            )
        over_x = tuple(range(len(x.shape) - axes, len(x.shape)))
        over_y = tuple(range(axes))
    else:
        over_x = tuple(normalize_axis("tensordot", a, len(x.shape)) for a in axes[0])
        over_y = tuple(normalize_axis("tensordot", a, len(y.shape)) for a in axes[1])
    if len(over_x) != len(over_y) or [x.shape[a] for a in over_x] != [y.shape[a] for a in over_y]:
        raise ShapeError(f"tensordot: axes {axes} of shapes {x.shape} and {y.shape} do not pair up.")
    rest_x = [a for a in range(len(x.shape)) if a not in over_x]
    rest_y = [a for a in range(len(y.shape)) if a not in over_y]
    rows, columns, inner = 1, 1, 1
    for a in rest_x:
        rows *= x.shape[a]
    for a in rest_y:
        columns *= y.shape[a]
    for a in over_x:
        inner *= x.shape[a]
    left = reshape(permute_dims(x, (*rest_x, *over_x)), (rows, inner))
    right = reshape(permute_dims(y, (*over_y, *rest_y)), (inner, columns))
    return reshape(_product(left, right), (*(x.shape[a] for a in rest_x), *(y.shape[a] for a in rest_y)))
