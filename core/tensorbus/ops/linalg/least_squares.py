"""Ranks, pseudo-inverses and least squares: where small singular values count as zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...dtypes import definition as dt
from ...dtypes.definition import DType, real_of
from ...errors import ArgumentError, ShapeError
from .. import sharding_rules
from ..batching_rules import aligned
from ..call_errors import with_form
from ..creation.creation import full, tril
from ..definition import Op, Spec, table
from ..elementwise.arithmetic import abs, maximum
from ..elementwise.comparison import equal, greater
from ..elementwise.family import Operand, broadcast_shapes, fit
from ..elementwise.where_cast import cast, where
from ..matmul.matmul import product
from ..movement.movement import reshape, sum_to
from ..reduction.reduction import sum
from .matrix import FACTORED, adjoint, as_column, as_row, check_matrix, check_square, columns
from .orthogonal import svd, svdvals

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

_DRIVERS: Final = (None, "gelsy", "gels", "gelsd", "gelss")
_EPSILON: Final = {dt.float32: 2.0**-23, dt.float64: 2.0**-52}


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    kind = fit("pinv", operand_dtypes[0], FACTORED)
    return kind, real_of(kind)


def _infer(specs: tuple[Spec, ...]) -> Spec:
    check_matrix("pinv", specs[0].shape)
    lead = broadcast_shapes(specs[0].shape[:-2], specs[1].shape[:-2])
    m, n = specs[0].shape[-2:]
    return Spec((*lead, n, m), specs[0].dtype)


def _pinv(x: Any, rtol: Any) -> Any:
    m, n = x.shape[-2:]
    if 0 in (m, n):
        lead = broadcast_shapes(x.shape[:-2], rtol.shape[:-2])
        return full((*lead, n, m), 0, dtype=x.dtype, device=x.device)
    u, s, vh = svd(x, full_matrices=False)
    large = greater(as_row(s), rtol * as_row(columns(s, 0, 1)))
    inverse = where(large, 1.0 / where(large, as_row(s), 1.0), 0.0)
    return product(adjoint(vh) * inverse, adjoint(u))


def _pinv_vjp(g: Any, out: Any, x: Any) -> tuple[Any, ...]:
    """Golub and Pereyra 1973, "The differentiation of pseudo-inverses", equation 4.12: at constant rank."""
    back = adjoint(out)
    adjoint_g = adjoint(g)
    rest_left = adjoint_g - product(x, product(out, adjoint_g))
    rest_right = adjoint_g - product(product(adjoint_g, out), x)
    back_in = product(product(rest_left, out), back) + product(product(back, out), rest_right)
    return sum_to(back_in - product(product(back, g), back), x.shape), None


def _arguments(x: Operand, rtol: Operand, /) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (x, rtol), {}


_pinv_op: Op[...] = table.add(
    Op(
        name="pinv",
        family="linalg",
        operands=("x", "rtol"),
        arguments=_arguments,
        infer=_infer,
        compute=_compute,
        decompose=_pinv,
        vjp=_pinv_vjp,
        batch=aligned("pinv"),
        shard=sharding_rules.batched(2),
        dtypes=FACTORED,
        raises_for=("x", "rtol"),
        method=False,
        doc="Pseudo-inverses; singular values up to ``rtol`` (1 by 1 matrices) times the largest count as 0.",
    )
)


def _tolerance(name: str, x: Any, rtol: Any) -> Any:
    """Return the tolerance of each matrix as a matrix of one element."""
    check_matrix(name, x.shape)
    kind = real_of(fit(name, x.dtype, FACTORED))
    if rtol is None:
        rtol = max(x.shape[-2:]) * _EPSILON[kind]
    if not hasattr(rtol, "dtype"):
        return full((1, 1), rtol, dtype=kind, device=x.device)
    bound = rtol if hasattr(rtol, "device") and hasattr(rtol, "requires_grad") else x.tensor_like_device(rtol)
    return reshape(cast(bound, kind), (*bound.shape, 1, 1))


@with_form
def pinv(
    x: Tensor, /, *, rtol: float | Tensor | None = None, atol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:  # fmt: skip
    """Return pseudo-inverses, of shape ``(..., n, m)`` for matrices of shape ``(..., m, n)``.

    Singular values up to ``rtol`` (one, or one for each matrix) times the largest count as 0, and those up to
    ``atol``; without both, up to the larger side times the machine epsilon. Gradients are those at constant
    rank. Of ``hermitian`` matrices only the lower triangle is read; the gradient goes to all elements, as it
    does without the word.

    >>> import tensorbus as tb
    >>> tb.linalg.pinv(tb.asarray([[2.0, 0.0], [0.0, 0.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    x = _hermitian("pinv", x) if hermitian else x
    relative = _tolerance("pinv", x, 0.0 if rtol is None and atol is not None else rtol)
    if atol is not None and 0 not in x.shape[-2:]:
        largest = as_row(columns(svdvals(x.detach()), 0, 1))
        relative = maximum(relative, _tolerance("pinv", x, atol) / where(equal(largest, 0), 1.0, largest))
    return _pinv_op(x, relative)


def _hermitian(name: str, x: Any) -> Any:
    """Return the matrices that the lower triangles of ``x`` stand for; their gradient is that of ``x``."""
    check_square(name, x.shape)
    whole = tril(x) + adjoint(tril(x, k=-1))
    return whole.detach() + (x - x.detach())


@with_form
def matrix_rank(
    x: Tensor, /, *, atol: float | Tensor | None = None, rtol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:  # fmt: skip
    """Return how many singular values count, as int64: those above ``atol`` and ``rtol`` times the largest.

    Each is one number, or one for each matrix. Without both, ``rtol`` is that of ``pinv``; of one alone the
    other is 0. Of ``hermitian`` matrices only the lower triangle is read.

    >>> import tensorbus as tb
    >>> tb.linalg.matrix_rank(tb.ones((3, 3))).item()
    1
    """
    x = _hermitian("matrix_rank", x) if hermitian else x
    relative = _tolerance("matrix_rank", x, 0.0 if rtol is None and atol is not None else rtol)
    values = svdvals(x)
    if not values.shape[-1]:
        return full(x.shape[:-2], 0, dtype=dt.int64, device=x.device)
    limit = relative * as_row(columns(values, 0, 1))
    if atol is not None:
        limit = maximum(limit, _tolerance("matrix_rank", x, atol))
    return sum(greater(as_row(values), limit), axis=(-2, -1))


class LeastSquares(NamedTuple):
    """The result of ``lstsq``. ``residuals`` are the squared distances of each column."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


@with_form
def lstsq(
    a: Tensor, b: Tensor, /, rcond: float | Tensor | None = None, *, driver: str | None = None
) -> LeastSquares:
    """Return the smallest ``x`` of those for which ``a @ x`` is nearest to ``b``.

    Shapes ``(..., m, n)`` and ``(..., m, k)``, or ``(m,)`` for one vector. ``rcond`` says which singular
    values of ``a`` count as 0, as ``rtol`` does in ``pinv``; gradients are those at constant rank. ``driver``
    is a choice of LAPACK's (``"gelsy"``, ``"gels"``, ``"gelsd"``, ``"gelss"``), which changes nothing: all
    give the same solution where it is determined. Raises ``ArgumentError`` for another one.

    >>> import tensorbus as tb
    >>> found = tb.linalg.lstsq(tb.asarray([[1.0], [1.0]]), tb.asarray([1.0, 3.0]))
    >>> round(found.solution.item(), 4), round(found.residuals.item(), 4)
    (2.0, 2.0)
    """
    if driver not in _DRIVERS:
        raise ArgumentError(f"lstsq: driver must be one of {', '.join(map(repr, _DRIVERS))}, got {driver!r}.")
    right = as_column(b) if len(b.shape) == 1 else b
    check_matrix("lstsq", right.shape)
    check_matrix("lstsq", a.shape)
    if a.shape[-2] != right.shape[-2]:
        raise ShapeError(
            f"lstsq: matrices of shape {a.shape} and right-hand sides of shape {b.shape} do not fit; the"
            f" latter need {a.shape[-2]} rows."
        )
    solution = product(pinv(a, rtol=rcond), right)
    distance = abs(right - product(a, solution))
    residuals = sum(distance * distance, axis=-2)
    if len(b.shape) == 1:
        solution, residuals = (reshape(x, x.shape[:-1]) for x in (solution, residuals))
    return LeastSquares(solution, residuals, matrix_rank(a, rtol=rcond), svdvals(a))
