"""Linear systems: general, triangular, and by Cholesky factors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import ShapeError
from ..call_errors import flags, with_form
from ..creation.creation import eye, tril, triu
from ..definition import Op, Spec
from ..elementwise.family import broadcast_shapes
from ..elementwise.where_cast import where
from ..matmul.matmul import matrix_transpose, product
from ..movement.movement import reshape, sum_to
from .matrix import (
    adjoint,
    as_column,
    check_matrix,
    check_square,
    diagonal_mask,
    hermitian_part,
    of_matrices,
    one_matrix,
    square,
)

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def _system(name: str) -> Callable[..., Spec]:
    def infer(specs: tuple[Spec, ...], **_: Any) -> Spec:
        a, b = specs
        check_square(name, a.shape)
        check_matrix(name, b.shape)
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"{name}: matrices of shape {a.shape} and right-hand sides of shape {b.shape} do not fit; the"
                f" latter need {a.shape[-1]} rows."
            )
        return Spec((*broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), a.dtype)

    return infer


def _solve_vjp(g: Any, out: Any, a: Any, b_shape: Any, wanted: tuple[bool, bool]) -> tuple[Any, ...]:
    """Giles 2008, "Collected matrix derivative results", 2.2.3 to 2.3.1."""
    back = _solve(adjoint(a), g)
    return (
        sum_to(-product(back, adjoint(out)), a.shape) if wanted[0] else None,
        sum_to(back, b_shape) if wanted[1] else None,
    )


_solve: Op[...] = of_matrices(
    "solve",
    operands=("a", "b"),
    arguments=lambda a, b, /: ((a, b), {}),
    infer=_system("solve"),
    vjp=_solve_vjp,
    doc="The ``x`` with ``a @ x = b``.",
)


@with_form
def solve(a: Tensor, b: Tensor, /) -> Tensor:
    """Return the ``x`` with ``a @ x = b``, for square matrices ``a``.

    ``b`` is one vector ``(n,)`` for all matrices, or matrices ``(..., n, k)``; stacks broadcast. Raises
    ``ShapeError`` where shapes do not fit, and ``LinAlgError`` for a singular matrix.

    >>> import tensorbus as tb
    >>> tb.linalg.solve(tb.asarray([[2.0, 0.0], [0.0, 4.0]]), tb.asarray([1.0, 2.0])).tolist()
    [0.5, 0.5]
    """
    if len(b.shape) == 1:
        column = _solve(a, as_column(b))
        return reshape(column, column.shape[:-1])
    return _solve(a, b)


def _inv_vjp(g: Any, out: Any) -> tuple[Any, ...]:
    back = adjoint(out)
    return (-product(product(back, g), back),)


_inv: Op[...] = of_matrices(
    "inv",
    arguments=one_matrix,
    infer=square("inv"),
    decompose=lambda x: _solve(x, eye(x.shape[-1], dtype=x.dtype, device=x.device)),
    vjp=_inv_vjp,
    doc="The inverses of square matrices.",
)


@with_form
def inv(x: Tensor, /) -> Tensor:
    """Return the inverses. ``solve`` is quicker and more exact where they are only multiplied by something.

    Raises ``ShapeError`` for matrices that are not square, ``LinAlgError`` for a singular one.

    >>> import tensorbus as tb
    >>> tb.linalg.inv(tb.asarray([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _inv(x)


def _triangle(x: Any, upper: bool, unit: bool) -> Any:
    if unit:
        return triu(x, k=1) if upper else tril(x, k=-1)
    return triu(x) if upper else tril(x)


def _triangular_vjp(
    g: Any, out: Any, a: Any, b_shape: Any, upper: bool, unit_diagonal: bool, wanted: tuple[bool, bool]
) -> tuple[Any, ...]:
    """Giles 2008, as for ``solve``; what lies outside the triangle has no influence."""
    back = triangular(adjoint(a), g, upper=not upper, unit_diagonal=unit_diagonal)
    inside = _triangle(-product(back, adjoint(out)), upper, unit_diagonal) if wanted[0] else None
    return (
        sum_to(inside, a.shape) if wanted[0] else None,
        sum_to(back, b_shape) if wanted[1] else None,
    )


triangular: Op[...] = of_matrices(
    "solve_triangular",
    operands=("a", "b"),
    arguments=lambda a, b, /, upper, unit_diagonal=False: (
        (a, b), {**flags("solve_triangular", upper=upper, unit_diagonal=unit_diagonal)}
    ),
    infer=_system("solve_triangular"),
    vjp=_triangular_vjp,
    doc="The ``x`` with ``a @ x = b``, where only one triangle of ``a`` counts.",
)  # fmt: skip


@with_form
def solve_triangular(
    a: Tensor, b: Tensor, /, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Return the ``x`` with ``a @ x = b`` (or ``x @ a = b`` unless ``left``), for triangular matrices ``a``.

    Only the triangle named is read, and not the diagonal, which is 1, if ``unitriangular``. Raises
    ``LinAlgError`` for a zero on the diagonal.

    >>> import tensorbus as tb
    >>> a = tb.asarray([[2.0, 9.0], [1.0, 1.0]])
    >>> tb.linalg.solve_triangular(a, tb.asarray([[2.0], [3.0]]), upper=False).tolist()
    [[1.0], [2.0]]
    """
    if left:
        return triangular(a, b, upper=upper, unit_diagonal=unitriangular)
    check_matrix("solve_triangular", a.shape)
    check_matrix("solve_triangular", b.shape)
    solved = triangular(
        matrix_transpose(a), matrix_transpose(b), upper=not upper, unit_diagonal=unitriangular
    )
    solution: Tensor = matrix_transpose(solved)
    return solution


def _half_diagonal(x: Any) -> Any:
    """Return the lower triangle with half of the diagonal."""
    return where(diagonal_mask(x.shape[-1], x), x * 0.5, tril(x))


def _cholesky_vjp(g: Any, out: Any) -> tuple[Any, ...]:
    """Murray 2016, "Differentiation of the Cholesky decomposition", equation 10; of Hermitian operands."""
    inner = hermitian_part(_half_diagonal(product(adjoint(out), tril(g))))
    left = triangular(adjoint(out), inner, upper=True)
    return (adjoint(triangular(adjoint(out), adjoint(left), upper=True)),)


_cholesky: Op[...] = of_matrices(
    "cholesky",
    arguments=one_matrix,
    infer=square("cholesky"),
    vjp=_cholesky_vjp,
    doc="The lower triangular ``L`` with ``L @ L.H = x``; only the lower triangle of ``x`` counts.",
)


@with_form
def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the triangular ``L`` with ``L @ L.H = x``, or ``U`` with ``U.H @ U = x`` if ``upper``.

    Matrices are Hermitian and positive definite: only the lower triangle is read; gradients are Hermitian.
    Raises ``LinAlgError`` where one is not positive definite.

    >>> import tensorbus as tb
    >>> tb.linalg.cholesky(tb.asarray([[4.0, 2.0], [2.0, 2.0]])).tolist()
    [[2.0, 0.0], [1.0, 1.0]]
    """
    lower = _cholesky(x)
    return adjoint(lower) if upper else lower


@with_form
def cholesky_solve(b: Tensor, factor: Tensor, /, *, upper: bool = False) -> Tensor:
    """Return the ``x`` with ``a @ x = b``, given the Cholesky factor of ``a``.

    >>> import tensorbus as tb
    >>> factor = tb.asarray([[2.0, 0.0], [1.0, 1.0]])
    >>> tb.linalg.cholesky_solve(tb.asarray([[6.0], [4.0]]), factor).tolist()
    [[1.0], [1.0]]
    """
    lower = adjoint(factor) if upper else factor
    return triangular(adjoint(lower), triangular(lower, b, upper=False), upper=True)
