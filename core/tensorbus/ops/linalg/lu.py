"""LU factors with row exchanges, and systems solved by them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dtypes import definition as dt
from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from ..creation.creation import eye, full, iota, tril, triu
from ..definition import Op, Spec
from ..elementwise.comparison import equal
from ..elementwise.family import broadcast_shapes
from ..elementwise.where_cast import cast
from ..indexing.indexing import gather, scatter
from ..matmul.matmul import product
from ..movement.movement import broadcast_to, concat, reshape
from .matrix import adjoint as of_adjoint
from .matrix import as_row, check_matrix, columns, of_matrices, one_matrix, rows
from .solve import triangular

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


class LU(NamedTuple):
    """``P @ L @ U``: a permutation, a lower triangle with a diagonal of ones, an upper triangle."""

    P: Tensor
    L: Tensor
    U: Tensor


def _infer(specs: tuple[Spec, ...]) -> tuple[Spec, Spec]:
    check_matrix("lu_factor", specs[0].shape)
    return specs[0], Spec(specs[0].shape[:-1], dt.int64)


def _vjp(g: Any, out: Any) -> tuple[Any, ...]:
    """Follows from ``dA = dL U + L dU`` with triangular ``dL`` and ``dU``, as in Giles 2008, section 2.2.

    Beyond the leading square, rows of L follow from U and columns of U from L.
    """
    (packed, permutation), grad = out, g[0]
    m, n = packed.shape[-2:]
    k = min(m, n)
    square, to_square = (rows(columns(x, 0, k), 0, k) for x in (packed, grad))
    lower, upper = tril(square, k=-1), triu(square)
    to_lower, to_upper = tril(to_square, k=-1), triu(to_square)
    lower = lower + eye(k, dtype=packed.dtype, device=packed.device)
    side = None
    if m > k:
        side = _by_inverse_adjoint(rows(grad, k, m), upper)
        to_upper = to_upper - product(of_adjoint(rows(packed, k, m)), side)
    elif n > k:
        side = triangular(of_adjoint(lower), columns(grad, k, n), upper=True, unit_diagonal=True)
        to_lower = to_lower - product(side, of_adjoint(columns(packed, k, n)))
    inner = tril(product(of_adjoint(lower), to_lower), k=-1) + triu(product(to_upper, of_adjoint(upper)))
    inner = triangular(of_adjoint(lower), inner, upper=True, unit_diagonal=True)
    back = _by_inverse_adjoint(inner, upper)
    if side is not None:
        back = concat([back, side], axis=-2 if m > k else -1)
    return (_put_rows(back, permutation),)


def _by_inverse_adjoint(x: Any, upper: Any) -> Any:
    """Return ``x`` times the inverse adjoint of an upper triangle."""
    return of_adjoint(triangular(upper, of_adjoint(x), upper=True))


_lu_factor: Op[...] = of_matrices(
    "lu_factor",
    results=("LU", "permutation"),
    arguments=one_matrix,
    infer=_infer,
    vjp=_vjp,
    doc="The factors ``L @ U`` of ``x[permutation]`` in one matrix, without the ones on L's diagonal.",
)


def _places(permutation: Any) -> tuple[Any, Any]:
    """Return flat indices of stacks and of their rows."""
    *lead, m = permutation.shape
    count = prod(lead)
    stacks = reshape(iota(count, device=permutation.device), (count, 1))
    return broadcast_to(stacks, (count, m)), reshape(permutation, (count, m))


def _put_rows(x: Any, permutation: Any) -> Any:
    """Return matrices whose row ``permutation[i]`` is row ``i`` of ``x``."""
    if x.shape[-2] < 2 or 0 in x.shape:
        return x
    flat = reshape(x, (-1, *x.shape[-2:]))
    none = full(flat.shape, 0, dtype=x.dtype, device=x.device)
    return reshape(scatter(none, flat, *_places(permutation)), x.shape)


def _take_rows(x: Any, permutation: Any) -> Any:
    """Return matrices whose row ``i`` is row ``permutation[i]`` of ``x``."""
    if x.shape[-2] < 2 or 0 in x.shape:
        return x
    return reshape(gather(reshape(x, (-1, *x.shape[-2:])), *_places(permutation)), x.shape)


class PackedLU(NamedTuple):
    """Both triangles in one matrix, and the order of the rows that they are factors of."""

    LU: Tensor
    permutation: Tensor


@with_form
def lu_factor(x: Tensor, /, *, pivot: bool = True) -> PackedLU:
    """Return ``(LU, permutation)``: the factors of ``x[permutation]`` in one matrix, for ``lu_solve``.

    Shape ``(..., m, n)``. L is the strictly lower triangle with ones on its diagonal, U the upper one; both
    exist for singular matrices too. Rows are exchanged to keep the elements of L at most 1 in size; that is
    the only way, so ``pivot=False`` raises ``ArgumentError``.

    >>> import tensorbus as tb
    >>> packed, permutation = tb.linalg.lu_factor(tb.asarray([[1.0, 2.0], [2.0, 2.0]]))
    >>> packed.tolist(), permutation.tolist()
    ([[2.0, 2.0], [0.5, 1.0]], [1, 0])
    """
    _check_pivot("lu_factor", pivot)
    return PackedLU(*_lu_factor(x))


def _check_pivot(name: str, pivot: bool) -> None:
    if not pivot:
        raise ArgumentError(f"{name}: factors without row exchanges are not available; leave pivot=True.")


@with_form
def lu(x: Tensor, /, *, pivot: bool = True) -> LU:
    """Return ``(P, L, U)`` with ``P @ L @ U = x``: see ``lu_factor``.

    >>> import tensorbus as tb
    >>> tb.linalg.lu(tb.asarray([[1.0, 2.0], [2.0, 2.0]])).P.tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    _check_pivot("lu", pivot)
    packed, permutation = lu_factor(x)
    m, n = packed.shape[-2:]
    k = min(m, n)
    places = reshape(iota(m, device=x.device), (m, 1))
    exchange = cast(equal(places, as_row(permutation)), packed.dtype)
    one = eye(m, k, dtype=packed.dtype, device=packed.device)
    return LU(exchange, tril(columns(packed, 0, k), k=-1) + one, triu(rows(packed, 0, k)))


@with_form
def lu_solve(
    packed: Tensor, permutation: Tensor, b: Tensor, /, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """Return the ``x`` with ``a @ x = b``, given what ``lu_factor(a)`` returned for square matrices.

    Unless ``left``, that with ``x @ a = b``; with ``adjoint``, of the conjugate transpose of ``a``.

    >>> import tensorbus as tb
    >>> factors = tb.linalg.lu_factor(tb.asarray([[1.0, 2.0], [2.0, 2.0]]))
    >>> tb.linalg.lu_solve(*factors, tb.asarray([[3.0], [4.0]])).tolist()
    [[1.0], [1.0]]
    """
    check_matrix("lu_solve", packed.shape)
    check_matrix("lu_solve", b.shape)
    if permutation.shape[-1:] != packed.shape[-1:]:
        raise ShapeError(
            f"lu_solve: factors of shape {packed.shape} need a permutation of {packed.shape[-1]} rows,"
            f" got shape {permutation.shape}."
        )
    if not left:  # x @ a = b is the adjoint of a.H @ x.H = b.H
        solved = lu_solve(packed, permutation, of_adjoint(b), adjoint=not adjoint)
        solution: Tensor = of_adjoint(solved)
        return solution
    lead = broadcast_shapes(permutation.shape[:-1], b.shape[:-2])
    order = broadcast_to(permutation, (*lead, permutation.shape[-1]))
    sides = broadcast_to(b, (*lead, *b.shape[-2:]))
    if adjoint:
        packed = of_adjoint(packed)
        inner = triangular(packed, triangular(packed, sides, upper=False), upper=True, unit_diagonal=True)
        rows: Tensor = _put_rows(inner, order)
        return rows
    sides = _take_rows(sides, order)
    return triangular(packed, triangular(packed, sides, upper=False, unit_diagonal=True), upper=True)
