"""Parts of matrices, products of vectors, and the family of ops on the matrices of a stack.

Array API standard 2025.12, extension "Linear Algebra Extension". A stack is a tensor whose last two axes are
those of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...dtypes.promotion import common_dtype
from ...errors import ShapeError
from .. import sharding_rules
from ..batching_rules import aligned
from ..call_errors import with_form
from ..creation.creation import iota
from ..definition import Op, Shape, Spec, table
from ..elementwise.arithmetic import conj
from ..elementwise.comparison import equal
from ..elementwise.family import Operand, fit
from ..elementwise.where_cast import cast, where
from ..matmul.matmul import check_vectors, matrix_transpose, product
from ..movement import diagonal as movement_diagonal
from ..movement.family import normalize_axis
from ..movement.movement import concat, reshape, slice
from ..reduction.reduction import sum

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

FACTORED: Final = (dt.float32, dt.float64, dt.complex64, dt.complex128)
"""The dtypes that libraries factor matrices in."""


def check_matrix(name: str, shape: Shape) -> None:
    """Raise ``ShapeError`` for fewer than two axes."""
    if len(shape) < 2:
        raise ShapeError(
            f"{name}: matrices need at least 2 dimensions, got shape {shape}; reshape a vector to a column."
        )


def check_square(name: str, shape: Shape) -> None:
    """Raise ``ShapeError`` unless the last two axes have the same length."""
    check_matrix(name, shape)
    if shape[-1] != shape[-2]:
        raise ShapeError(f"{name}: square matrices are needed, the last two axes of shape {shape} differ.")


def of_matrices(
    name: str,
    *,
    arguments: Callable[..., tuple[tuple[Operand, ...], dict[str, Any]]],
    infer: Callable[..., Any],
    operands: tuple[str, ...] = ("x",),
    results: tuple[str, ...] = (),
    decompose: Callable[..., Any] | None = None,
    vjp: Callable[..., tuple[Any, ...]] | None = None,
    raises: bool = True,
    may_overwrite: tuple[str, ...] = (),
    doc: str,
) -> Op[...]:
    """Define an op on each matrix of a stack; of several operands the stacks broadcast."""

    def compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
        return (fit(name, common_dtype(operand_dtypes), FACTORED),) * len(operand_dtypes)

    return table.add(
        Op(
            name=name, family="linalg", operands=operands, results=results, arguments=arguments, infer=infer,
            compute=compute, decompose=decompose, vjp=vjp, batch=aligned(name), dtypes=FACTORED,
            shard=sharding_rules.batched(2),
            raises_for=operands if raises else (), method=False, may_overwrite=may_overwrite, doc=doc,
        )
    )  # fmt: skip


def one_matrix(x: Operand, /) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    """The Python signature of ops with one operand and no attributes."""
    return (x,), {}


def square(name: str) -> Callable[..., Spec]:
    """Return the rule of an op from square matrices to matrices of the same shape."""

    def infer(specs: tuple[Spec, ...]) -> Spec:
        check_square(name, specs[0].shape)
        return specs[0]

    return infer


def adjoint(x: Any) -> Any:
    """Return the conjugate transposes."""
    return conj(matrix_transpose(x))


def hermitian_part(x: Any) -> Any:
    """Return the half of ``x`` plus its adjoint: what of a gradient counts for a Hermitian operand."""
    return (x + adjoint(x)) * 0.5


def rows(x: Any, first: int, last: int) -> Any:
    """Return the rows ``first`` to ``last`` of each matrix."""
    return _cut(x, len(x.shape) - 2, first, last)


def columns(x: Any, first: int, last: int) -> Any:
    """Return the columns ``first`` to ``last`` of each matrix."""
    return _cut(x, len(x.shape) - 1, first, last)


def _cut(x: Any, axis: int, first: int, last: int) -> Any:
    if first == 0 and last == x.shape[axis]:
        return x
    rank = len(x.shape)
    start = tuple(first if k == axis else 0 for k in range(rank))
    size = tuple(last - first if k == axis else n for k, n in enumerate(x.shape))
    return slice(x, start, size, (1,) * rank)


def as_column(x: Any) -> Any:
    """Return vectors as matrices of one column."""
    return reshape(x, (*x.shape, 1))


def as_row(x: Any) -> Any:
    """Return vectors as matrices of one row."""
    return reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def diagonal_mask(n: int, like: Any) -> Any:
    """Return a mask of ``n`` rows that is true on the diagonal, on the device of ``like``."""
    places = iota(n, device=like.device)
    return equal(reshape(places, (n, 1)), places)


@with_form
def diagonal(x: Tensor, /, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Return the diagonals of matrices; ``offset`` counts above the main one, below it where negative.

    Shape ``(..., m, n)`` gives ``(..., k)``, where ``k`` is 0 for a diagonal outside; the matrices may lie
    along other axes than the last two. Raises ``ShapeError`` for fewer than two axes.

    >>> import tensorbus as tb
    >>> tb.linalg.diagonal(tb.asarray([[1, 2], [3, 4]]), offset=1).tolist()
    [2]
    """
    check_matrix("diagonal", x.shape)
    elements: Tensor = movement_diagonal.diagonal(x, offset, axis1, axis2)
    return elements


@with_form
def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | str | None = None) -> Tensor:
    """Return the sums of diagonals, in ``dtype``; without one, integers add up in 64 bits.

    >>> import tensorbus as tb
    >>> tb.linalg.trace(tb.asarray([[1, 2], [3, 4]])).item()
    5
    """
    elements = diagonal(x, offset=offset)
    if dtype is None:
        return sum(elements, axis=-1)
    return cast(sum(cast(elements, dtype), axis=-1), dtype)


@with_form
def outer(x: Tensor, y: Tensor, /) -> Tensor:
    """Return all products of an element of the vector ``x`` (rows) and one of ``y`` (columns).

    Raises ``ShapeError`` for anything but vectors.

    >>> import tensorbus as tb
    >>> tb.linalg.outer(tb.asarray([1, 2]), tb.asarray([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    if len(x.shape) != 1 or len(y.shape) != 1:
        raise ShapeError(
            f"outer: two vectors are needed, got shapes {x.shape} and {y.shape}; for stacks, multiply"
            f" x[..., None] by y[..., None, :]."
        )
    products: Tensor = as_column(x) * as_row(y)
    return products


@with_form
def cross(x: Tensor, y: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the cross products of vectors of 3 elements along ``axis``; other axes broadcast.

    ``axis`` counts from the back, unless both have the same rank. Raises ``ShapeError`` for other lengths.

    >>> import tensorbus as tb
    >>> tb.linalg.cross(tb.asarray([1, 0, 0]), tb.asarray([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    check_vectors("cross", x.shape, y.shape, axis, 3)
    first, second = _rolled(x, axis, 1), _rolled(y, axis, 2)
    product: Tensor = first * second - _rolled(x, axis, 2) * _rolled(y, axis, 1)
    return product


def _rolled(x: Any, axis: int, by: int) -> Any:
    place = normalize_axis("cross", axis, len(x.shape))
    return concat([_cut(x, place, by, 3), _cut(x, place, 0, by)], axis=place)


def quotient(x: Any, y: Any) -> Any:
    """Return ``x / y``, and 0 where ``y`` is 0."""
    none = equal(y, 0)
    return where(none, 0, x / where(none, 1, y))


def sandwich(left: Any, middle: Any, right: Any) -> Any:
    """Return the product of three matrices."""
    return product(product(left, middle), right)
