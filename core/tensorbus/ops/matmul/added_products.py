"""Products that are added to a tensor, under PyTorch's names: ``beta * x + alpha * (y @ z)``.

With ``beta`` 0 the elements of ``x`` do not count, not even NaN, and its gradient is 0; its shape and dtype
count.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...dtypes.definition import bool_
from ...dtypes.promotion import common_dtype
from ...errors import ShapeError
from ..call_errors import with_form
from ..creation.creation import full
from ..elementwise.family import Operand, broadcast_in
from ..elementwise.where_cast import cast, where
from ..movement.movement import permute_dims, reshape
from .matmul import matmul, product


def _added(name: str, x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    if broadcast_in(name, (x.shape, product.shape)) != product.shape:
        raise ShapeError(
            f"{name}: x of shape {x.shape} does not broadcast to the product's shape {product.shape}."
        )
    if x.dtype is product.dtype is bool_:  # numbers say whether the terms count
        alpha, beta = (n != 0 if type(n) is int else n for n in (alpha, beta))
    scaled = product if _is(alpha, 1) else product * alpha
    if _is(beta, 0):
        if x.requires_grad:
            return where(full((), False, device=x.device), x, scaled)
        dtype = common_dtype((x.dtype, scaled.dtype))
        return scaled if scaled.dtype is dtype else cast(scaled, dtype)
    return (x if _is(beta, 1) else x * beta) + scaled


def _is(factor: Any, number: int) -> bool:
    return isinstance(factor, (int, float)) and factor == number


def _check_ranks(name: str, y: Any, z: Any, ranks: tuple[int, int]) -> None:
    if (len(y.shape), len(z.shape)) != ranks:
        raise ShapeError(
            f"{name}: factors of {ranks[0]} and {ranks[1]} dimensions are needed, got shapes {y.shape} and"
            f" {z.shape}."
        )


@with_form
def addmm(x: Operand, y: Operand, z: Operand, /, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * x + alpha * (y @ z)`` of two matrices; ``x`` broadcasts to their product.

    >>> import tensorbus as tb
    >>> tb.addmm(tb.ones(2), tb.ones((1, 3)), tb.ones((3, 2)), alpha=2).tolist()
    [[7.0, 7.0]]
    """
    _check_ranks("addmm", y, z, (2, 2))
    return _added("addmm", x, matmul(y, z), beta, alpha)


@with_form
def addmv(x: Operand, y: Operand, z: Operand, /, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * x + alpha * (y @ z)`` of a matrix and a vector."""
    _check_ranks("addmv", y, z, (2, 1))
    return _added("addmv", x, matmul(y, z), beta, alpha)


@with_form
def addr(x: Operand, y: Operand, z: Operand, /, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * x + alpha * outer(y, z)`` of two vectors."""
    _check_ranks("addr", y, z, (1, 1))
    return _added("addr", x, reshape(y, (y.shape[0], 1)) * z, beta, alpha)


@with_form
def baddbmm(x: Operand, y: Operand, z: Operand, /, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * x + alpha * (y @ z)`` of two batches of matrices."""
    _check_ranks("baddbmm", y, z, (3, 3))
    return _added("baddbmm", x, product(y, z), beta, alpha)


@with_form
def addbmm(x: Operand, y: Operand, z: Operand, /, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * x + alpha * (y @ z).sum(axis=0)`` of two batches of matrices.

    >>> import tensorbus as tb
    >>> tb.addbmm(tb.zeros((1, 1)), tb.ones((4, 1, 2)), tb.ones((4, 2, 1))).tolist()
    [[8.0]]
    """
    _check_ranks("addbmm", y, z, (3, 3))
    if y.shape[0] != z.shape[0] or y.shape[2] != z.shape[1]:
        raise ShapeError(f"addbmm: batches of shapes {y.shape} and {z.shape} do not fit.")
    batch, rows, inner = y.shape
    left = reshape(permute_dims(y, (1, 0, 2)), (rows, batch * inner))  # the batch is summed over as well
    whole = product(left, reshape(z, (batch * inner, z.shape[2])))
    return _added("addbmm", x, whole, beta, alpha)


@with_form
def inner(x: Operand, y: Operand, /) -> Any:
    """Return the products of ``x`` and ``y`` summed over the last axis of both; nothing is conjugated.

    Shapes ``(*a, n)`` and ``(*b, n)`` give ``(*a, *b)``; a number multiplies. Raises ``ShapeError`` where the
    last axes differ.

    >>> import tensorbus as tb
    >>> tb.inner(tb.asarray([1, 2]), tb.asarray([[3, 4], [5, 6]])).tolist()
    [11, 17]
    """
    if not x.shape or not y.shape:
        return x * y
    if x.shape[-1] != y.shape[-1]:
        raise ShapeError(f"inner: the last axes of shapes {x.shape} and {y.shape} differ.")
    length = x.shape[-1]
    rows = reshape(x, (prod(x.shape[:-1]), length))
    columns = reshape(y, (prod(y.shape[:-1]), length))
    return reshape(product(rows, permute_dims(columns, (1, 0))), x.shape[:-1] + y.shape[:-1])
