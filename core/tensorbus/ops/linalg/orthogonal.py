"""QR factors and singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...dtypes.definition import real_of
from ...errors import ArgumentError, AutogradError
from ..call_errors import flags, with_form
from ..creation.creation import triu
from ..definition import Op, Spec
from ..elementwise.where_cast import where
from ..matmul.matmul import product
from ..movement.diagonal import diag_embed
from ..movement.movement import concat
from .matrix import (
    adjoint,
    as_column,
    as_row,
    check_matrix,
    columns,
    diagonal,
    diagonal_mask,
    of_matrices,
    one_matrix,
    quotient,
    sandwich,
)
from .solve import triangular

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


class QR(NamedTuple):
    """Orthonormal columns and an upper triangle: ``Q @ R``."""

    Q: Tensor
    R: Tensor


class SVD(NamedTuple):
    """Orthonormal columns, descending numbers and orthonormal rows: ``U @ diag(S) @ Vh``."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _qr_arguments(x: Any, /, mode: str = "reduced") -> tuple[tuple[Any, ...], dict[str, Any]]:
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f"qr: mode is {mode!r}; it must be 'reduced' or 'complete'.")
    return (x,), {"mode": mode}


def _qr_infer(specs: tuple[Spec, ...], *, mode: str) -> tuple[Spec, Spec]:
    shape, dtype = specs[0].shape, specs[0].dtype
    check_matrix("qr", shape)
    *lead, m, n = shape
    k = m if mode == "complete" else min(m, n)
    return Spec((*lead, m, k), dtype), Spec((*lead, k, n), dtype)


def _qr_vjp(g: Any, out: Any, mode: str) -> tuple[Any, ...]:
    """Seeger et al. 2017, "Auto-differentiating linear algebra", for ``m >= n``.

    Of a wide matrix the columns beyond the square are ``Q.H`` times R's, so their part goes to Q and itself.
    """
    (q, r), (to_q, to_r) = out, g
    m, n = q.shape[-2], r.shape[-1]
    if mode == "complete" and m > n:
        raise AutogradError(
            f"qr: with mode='complete', the last {m - n} columns of Q are any basis of what is left, so the"
            f" factors of {m} by {n} matrices have no gradient; use mode='reduced'."
        )
    beyond = None
    if n > m:
        beyond, right = columns(to_r, m, n), columns(r, m, n)
        to_q = to_q + product(product(q, right), adjoint(beyond))
        r, to_r = columns(r, 0, m), columns(to_r, 0, m)
    upper = triu(product(to_r, adjoint(r)) - product(adjoint(q), to_q))
    both = upper + adjoint(upper)
    both = where(diagonal_mask(both.shape[-1], both), both * 0.5, both)
    back = to_q + product(q, both)
    back = adjoint(triangular(r, adjoint(back), upper=True))
    return (back if beyond is None else concat([back, product(q, beyond)], axis=-1),)


_qr: Op[...] = of_matrices(
    "qr",
    results=("Q", "R"),
    arguments=_qr_arguments,
    infer=_qr_infer,
    vjp=_qr_vjp,
    doc="Orthonormal columns Q and an upper triangle R with ``Q @ R = x``.",
)


@with_form
def qr(x: Tensor, /, *, mode: str = "reduced") -> QR:
    """Return ``(Q, R)``: orthonormal columns and an upper triangle with ``Q @ R = x``.

    Of shapes ``(..., m, k)`` and ``(..., k, n)``, where ``k`` is the smaller of ``m`` and ``n``, or ``m`` for
    ``mode="complete"``. Gradients need linearly independent columns (the first ``m`` of a wide matrix); those
    of complete factors of tall matrices raise ``AutogradError``.

    >>> import tensorbus as tb
    >>> tb.linalg.qr(tb.ones((3, 2))).Q.shape
    (3, 2)
    """
    return QR(*_qr(x, mode=mode))


def _svd_infer(specs: tuple[Spec, ...], *, full_matrices: bool) -> tuple[Spec, Spec, Spec]:
    shape, dtype = specs[0].shape, specs[0].dtype
    check_matrix("svd", shape)
    *lead, m, n = shape
    k = min(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    return Spec((*lead, m, left), dtype), Spec((*lead, k), real_of(dtype)), Spec((*lead, right, n), dtype)


def _svd_vjp(g: Any, out: Any, full_matrices: bool) -> tuple[Any, ...]:
    """Townsend 2016, "Differentiating the singular value decomposition"; complex: Wan and Zhang 2019.

    Equal or vanishing singular values give 0 over 0 for functions that are well defined, which counts as 0.
    """
    (u, s, vh), (to_u, to_s, to_vh) = out, g
    m, n, k = u.shape[-2], vh.shape[-1], s.shape[-1]
    if full_matrices and m != n:
        raise AutogradError(
            f"svd: with full_matrices=True, the last {abs(m - n)} singular vectors of a {m} by {n} matrix are"
            f" any basis of what is left, so they have no gradient; use full_matrices=False, or svdvals."
        )
    v, to_v = adjoint(vh), adjoint(to_vh)
    gaps = (as_row(s) - as_column(s)) * (as_row(s) + as_column(s))
    turn_u, turn_v = product(adjoint(u), to_u), product(vh, to_v)
    turn_u, turn_v = turn_u - adjoint(turn_u), turn_v - adjoint(turn_v)
    inner = quotient(turn_u, gaps) * as_row(s) + quotient(turn_v, gaps) * as_column(s) + diag_embed(to_s)
    if u.dtype.is_complex:
        inner = inner + diag_embed(quotient(diagonal(turn_u), s * 2.0))
    back = sandwich(u, inner, vh)
    if m > k:
        free = to_u - product(u, product(adjoint(u), to_u))
        back = back + product(quotient(free, as_row(s)), vh)
    if n > k:
        free = to_v - product(v, product(vh, to_v))
        back = back + product(u, adjoint(quotient(free, as_row(s))))
    return (back,)


_svd: Op[...] = of_matrices(
    "svd",
    results=("U", "S", "Vh"),
    arguments=lambda x, /, full_matrices=True: (
        (x,),
        {**flags("svd", full_matrices=full_matrices)},
    ),
    infer=_svd_infer,
    vjp=_svd_vjp,
    doc="Orthonormal columns U, descending numbers S, orthonormal rows Vh: ``U @ diag(S) @ Vh = x``.",
)


@with_form
def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVD:
    """Return ``(U, S, Vh)``: orthonormal columns, descending singular values, orthonormal rows.

    ``U * S[..., None, :] @ Vh`` is ``x`` where ``full_matrices`` is false: U then has as many columns, and Vh
    as many rows, as there are singular values. Otherwise both are square, and have no gradient unless ``x``
    is square. Gradients of vectors exist for functions that do not depend on their signs (or phases), nor on
    which basis stands for equal singular values.

    >>> import tensorbus as tb
    >>> tb.linalg.svd(tb.asarray([[0.0, 3.0], [2.0, 0.0]])).S.tolist()
    [3.0, 2.0]
    """
    return SVD(*_svd(x, full_matrices=full_matrices))


def _svdvals_infer(specs: tuple[Spec, ...]) -> Spec:
    shape, dtype = specs[0].shape, specs[0].dtype
    check_matrix("svdvals", shape)
    return Spec((*shape[:-2], min(shape[-2:])), real_of(dtype))


_svdvals: Op[...] = of_matrices(
    "svdvals",
    arguments=one_matrix,
    infer=_svdvals_infer,
    decompose=lambda x: svd(x, full_matrices=False).S,
    may_overwrite=("x",),
    doc="Descending singular values.",
)


@with_form
def svdvals(x: Tensor, /) -> Tensor:
    """Return the descending singular values of matrices.

    >>> import tensorbus as tb
    >>> tb.linalg.svdvals(tb.asarray([[0.0, 3.0], [2.0, 0.0]])).tolist()
    [3.0, 2.0]
    """
    return _svdvals(x)
