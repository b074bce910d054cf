"""Tensors made of indices and powers: triangles' places, and Vandermonde matrices. Names are PyTorch's."""

from __future__ import annotations

from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ...errors import DtypeError, ShapeError
from ...tracing.sym_int import index
from ..call_errors import with_form
from ..elementwise.comparison import greater_equal, less_equal
from ..elementwise.where_cast import cast
from ..movement.movement import broadcast_to, concat, flip, reshape, stack
from ..ordering.sorting import argsort
from ..reduction.scan import cut, prod_scan
from .creation import DeviceLike, iota, ones, resolve


def _triangle(
    name: str, row: int, col: int, offset: int, dtype: DType | str | None, device: DeviceLike, lower: bool
) -> Any:
    rows, columns, k = index(row), index(col), index(offset)
    if rows < 0 or columns < 0:
        raise ShapeError(f"{name}: a matrix has sides >= 0, got {rows} and {columns}.")
    kind = dt.default_int if dtype is None else dt.dtype(dtype)
    if not kind.is_integer:
        raise DtypeError(f"{name}: indices are integers, got dtype {kind}.")
    k = max(min(k, columns), -rows)
    line, across = (iota(n, device=resolve(device)) for n in (rows, columns))
    apart = across - reshape(line, (rows, 1))
    chosen = less_equal(apart, k) if lower else greater_equal(apart, k)
    below = [min(max(r + k + (1 if lower else 0), 0), columns) for r in range(rows)]
    count = sum(below) if lower else rows * columns - sum(below)
    places = cut(argsort(reshape(chosen, (rows * columns,)), descending=True), 0, 0, count)  # in C order
    return cast(stack([places // max(columns, 1), places % max(columns, 1)]), kind)


@with_form
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | str | None = None, device: DeviceLike = None
) -> Any:
    """Return the places of the lower triangle of a ``row`` by ``col`` matrix: row indices, column indices.

    Shape ``(2, n)``, in C order; ``offset`` is the diagonal that the triangle ends with. Raises
    ``ShapeError`` for sides below 0, ``DtypeError`` for a dtype that is no integer.

    >>> import tensorbus as tb
    >>> tb.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return _triangle("tril_indices", row, col, offset, dtype, device, lower=True)


@with_form
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | str | None = None, device: DeviceLike = None
) -> Any:
    """Return the places of the upper triangle of a ``row`` by ``col`` matrix: row indices, column indices.

    Arguments, shape and errors are those of ``tril_indices``.

    >>> import tensorbus as tb
    >>> tb.triu_indices(2, 2, 1).tolist()
    [[0], [1]]
    """
    return _triangle("triu_indices", row, col, offset, dtype, device, lower=False)


@with_form
def vander(x: Any, /, N: int | None = None, increasing: bool = False) -> Any:  # noqa: N803 - PyTorch's name
    """Return the powers of the elements of ``x`` along a new last axis: ``N`` of them, as many as ``x`` has.

    The powers fall from ``N - 1`` to 0, with ``increasing`` they rise. Shape ``(*, n)`` gives ``(*, n, N)``;
    integers and bools give int64. Raises ``ShapeError`` for a 0-dimensional ``x`` or a negative ``N``.

    >>> import tensorbus as tb
    >>> tb.vander(tb.asarray([1, 2, 3]), increasing=True).tolist()
    [[1, 1, 1], [1, 2, 4], [1, 3, 9]]
    """
    if not x.shape:
        raise ShapeError("vander: a 0-dimensional tensor has no axis; reshape it to (1,) first.")
    count = x.shape[-1] if N is None else index(N)
    if count < 0:
        raise ShapeError(f"vander: a matrix has sides >= 0, got N={count}.")
    more = max(count - 1, 0)
    powers = prod_scan(broadcast_to(reshape(x, (*x.shape, 1)), (*x.shape, more)), axis=-1)
    if count:
        powers = concat([ones((*x.shape, 1), dtype=powers.dtype, device=x.device), powers], axis=-1)
    return powers if increasing else flip(powers, axis=-1)
