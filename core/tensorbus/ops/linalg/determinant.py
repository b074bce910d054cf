"""Determinants, and the adjugate, which is their derivative."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...dtypes.definition import real_of
from ..call_errors import with_form
from ..definition import Op, Spec
from ..elementwise.arithmetic import complex, conj
from ..elementwise.comparison import less
from ..elementwise.complex import angle
from ..elementwise.where_cast import where
from ..matmul.matmul import product
from ..movement.movement import reshape
from ..reduction.reduction import products_of_others
from .matrix import adjoint, as_row, check_square, of_matrices, one_matrix, square, trace
from .orthogonal import svd
from .solve import inv

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def _over_matrices(x: Any) -> Any:
    """Return one number for each matrix, ready to broadcast over it."""
    return reshape(x, (*x.shape, 1, 1))


def _adjugate(x: Any) -> Any:
    """Return it by singular values: without a quotient, so that singular matrices have one."""
    u, s, vh = svd(x, full_matrices=False)
    turn = det(u) * det(vh)
    return adjoint(u * as_row(products_of_others(s)) @ vh) * _over_matrices(turn)


def _adjugate_vjp(g: Any, x: Any) -> tuple[Any, ...]:
    """Follows from ``adj(A) = det(A) inv(A)``; this second derivative is that of regular matrices only."""
    inverse = inv(x)
    back = adjoint(inverse)
    stretch = _over_matrices(conj(trace(product(adjoint(g), inverse))))
    return (_over_matrices(conj(det(x))) * (stretch * back - product(product(back, g), back)),)


adjugate: Op[...] = of_matrices(
    "adjugate",
    raises=False,
    arguments=one_matrix,
    infer=square("adjugate"),
    decompose=_adjugate,
    vjp=_adjugate_vjp,
    doc="The transposed cofactors of square matrices: ``det(x) * inv(x)``, also of singular ones.",
)


def _slogdet_infer(specs: tuple[Spec, ...]) -> tuple[Spec, Spec]:
    shape, dtype = specs[0].shape, specs[0].dtype
    check_square("slogdet", shape)
    return Spec(shape[:-2], dtype), Spec(shape[:-2], real_of(dtype))


def _slogdet_vjp(g: Any, out: Any, x: Any) -> tuple[Any, ...]:
    """Giles 2008, section 2.2.4; the sign of a complex determinant turns with the imaginary part."""
    (sign, _), (to_sign, to_log) = out, g
    turn = conj(to_sign) * sign
    factor = to_log + (conj(turn) - turn) * 0.5 if sign.dtype.is_complex else to_log
    return (_over_matrices(factor) * adjoint(inv(x)),)


_slogdet: Op[...] = of_matrices(
    "slogdet",
    results=("sign", "logabsdet"),
    arguments=one_matrix,
    infer=_slogdet_infer,
    vjp=_slogdet_vjp,
    doc="The sign of the determinant and the logarithm of its magnitude.",
)


class SignAndLog(NamedTuple):
    """A determinant as ``sign * exp(logabsdet)``."""

    sign: Tensor
    logabsdet: Tensor


@with_form
def slogdet(x: Tensor, /) -> SignAndLog:
    """Return ``(sign, logabsdet)`` of square matrices: ``det(x) = sign * exp(logabsdet)``.

    A complex sign is a number of magnitude 1. A singular matrix has the sign 0 and the logarithm -inf.

    >>> import tensorbus as tb
    >>> tb.linalg.slogdet(tb.asarray([[0.0, 1.0], [1.0, 0.0]])).sign.item()
    -1.0
    """
    return SignAndLog(*_slogdet(x))


def _det_infer(specs: tuple[Spec, ...]) -> Spec:
    check_square("det", specs[0].shape)
    return Spec(specs[0].shape[:-2], specs[0].dtype)


_det: Op[...] = of_matrices(
    "det",
    arguments=one_matrix,
    infer=_det_infer,
    vjp=lambda g, x: (_over_matrices(g) * adjoint(adjugate(x)),),
    doc="The determinants of square matrices.",
)


@with_form
def det(x: Tensor, /) -> Tensor:
    """Return the determinants of square matrices. ``slogdet`` is for those too large or small for the dtype.

    >>> import tensorbus as tb
    >>> tb.linalg.det(tb.asarray([[2.0, 1.0], [0.0, 3.0]])).item()
    6.0
    """
    return _det(x)


@with_form
def logdet(x: Tensor, /) -> Tensor:
    """Return the logarithms of the determinants of square matrices.

    -inf for a singular matrix, NaN for a negative determinant; complex matrices have complex logarithms.
    ``slogdet`` keeps the sign.

    >>> import tensorbus as tb
    >>> round(tb.logdet(tb.asarray([[2.0, 0.0], [0.0, 4.0]])).item(), 4)
    2.0794
    """
    sign, logabsdet = _slogdet(x)
    if x.dtype.is_complex:
        return complex(logabsdet, angle(sign))
    return where(less(sign, 0), float("nan"), logabsdet)
