"""Eigenvalues and eigenvectors of Hermitian and of general matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...dtypes.definition import complex_of, real_of
from ...errors import ArgumentError
from ..call_errors import with_form
from ..definition import Op, Spec
from ..elementwise.arithmetic import real
from ..matmul.matmul import product
from ..movement.diagonal import diag_embed
from .matrix import (
    adjoint,
    as_column,
    as_row,
    check_square,
    diagonal,
    hermitian_part,
    of_matrices,
    one_matrix,
    quotient,
    sandwich,
)
from .solve import solve

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


class Eigen(NamedTuple):
    """Eigenvalues, and the eigenvectors as columns in the same order."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _eigh_infer(specs: tuple[Spec, ...]) -> tuple[Spec, Spec]:
    shape, dtype = specs[0].shape, specs[0].dtype
    check_square("eigh", shape)
    return Spec(shape[:-1], real_of(dtype)), specs[0]


def _eigh_vjp(g: Any, out: Any) -> tuple[Any, ...]:
    """Giles 2008, section 3.1; its Hermitian part, since the operand is Hermitian.

    Equal eigenvalues have no own vectors, and a function of them that is well defined gives 0 over 0 there,
    which counts as 0.
    """
    (values, vectors), (to_values, to_vectors) = out, g
    gaps = as_row(values) - as_column(values)
    inner = quotient(product(adjoint(vectors), to_vectors), gaps) + diag_embed(to_values)
    return (hermitian_part(sandwich(vectors, inner, adjoint(vectors))),)


_eigh: Op[...] = of_matrices(
    "eigh",
    results=("eigenvalues", "eigenvectors"),
    arguments=one_matrix,
    infer=_eigh_infer,
    vjp=_eigh_vjp,
    doc="Ascending eigenvalues of Hermitian matrices, and eigenvectors of length 1 as columns.",
)


def _lower(name: str, x: Any, triangle: str) -> Any:
    """Return matrices whose lower triangles say what that of ``x`` says: the lower or the upper one."""
    if triangle not in ("L", "U"):
        raise ArgumentError(f"{name}: UPLO is 'L' (lower triangle) or 'U' (upper), got {triangle!r}.")
    check_square(name, x.shape)
    return x if triangle == "L" else adjoint(x)


@with_form
def eigh(x: Tensor, /, UPLO: str = "L") -> Eigen:  # noqa: N803 - PyTorch's name
    """Return ``(eigenvalues, eigenvectors)`` of Hermitian matrices: ascending real numbers, and columns.

    Only the lower triangle is read, with ``UPLO="U"`` only the upper one; gradients are Hermitian. Those of
    eigenvectors exist for functions that do not depend on their sign (or phase), nor on which basis stands
    for equal eigenvalues. Raises ``LinAlgError`` where it does not converge, ``ArgumentError`` for another
    triangle.

    >>> import tensorbus as tb
    >>> tb.linalg.eigh(tb.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [1.0, 2.0]
    """
    return Eigen(*_eigh(_lower("eigh", x, UPLO)))


def _values_infer(name: str, complex_result: bool) -> Any:
    def infer(specs: tuple[Spec, ...]) -> Spec:
        shape, dtype = specs[0].shape, specs[0].dtype
        check_square(name, shape)
        return Spec(shape[:-1], complex_of(dtype) if complex_result else real_of(dtype))

    return infer


_eigvalsh: Op[...] = of_matrices(
    "eigvalsh",
    arguments=one_matrix,
    infer=_values_infer("eigvalsh", False),
    decompose=lambda x: eigh(x).eigenvalues,
    may_overwrite=("x",),
    doc="Ascending eigenvalues of Hermitian matrices.",
)


@with_form
def eigvalsh(x: Tensor, /, UPLO: str = "L") -> Tensor:  # noqa: N803 - PyTorch's name
    """Return the ascending eigenvalues of Hermitian matrices.

    Only the lower triangle is read, with ``UPLO="U"`` only the upper one.

    >>> import tensorbus as tb
    >>> tb.linalg.eigvalsh(tb.asarray([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [1.0, 2.0]
    """
    return _eigvalsh(_lower("eigvalsh", x, UPLO))


def _eig_infer(specs: tuple[Spec, ...]) -> tuple[Spec, Spec]:
    shape, dtype = specs[0].shape, complex_of(specs[0].dtype)
    check_square("eig", shape)
    return Spec(shape[:-1], dtype), Spec(shape, dtype)


def _eig_vjp(g: Any, out: Any, x: Any) -> tuple[Any, ...]:
    """Boeddeker et al. 2017, "On the computation of complex-valued gradients", section 4.7.

    The vectors have length 1, so what would stretch them is taken out first.
    """
    (values, vectors), (to_values, to_vectors) = out, g
    inner = product(adjoint(vectors), to_vectors)
    stretch = real(diagonal(inner))
    inner = inner - product(adjoint(vectors), vectors * as_row(stretch))
    gaps = adjoint(as_column(values) - as_row(values))
    inner = quotient(inner, gaps) + diag_embed(to_values)
    back = solve(adjoint(vectors), product(inner, adjoint(vectors)))
    return (back if x.dtype.is_complex else real(back),)


_eig: Op[...] = of_matrices(
    "eig",
    results=("eigenvalues", "eigenvectors"),
    arguments=one_matrix,
    infer=_eig_infer,
    vjp=_eig_vjp,
    doc="Complex eigenvalues of square matrices, and eigenvectors of length 1 as columns.",
)


@with_form
def eig(x: Tensor, /) -> Eigen:
    """Return ``(eigenvalues, eigenvectors)`` of square matrices: complex numbers in any order, and columns.

    Gradients exist for functions that do not depend on the vectors' phases, of matrices with distinct
    eigenvalues. Raises ``LinAlgError`` for NaN and infinities.

    >>> import tensorbus as tb
    >>> tb.linalg.eig(tb.asarray([[2.0, 0.0], [0.0, 1.0]])).eigenvalues.tolist()
    [(2+0j), (1+0j)]
    """
    return Eigen(*_eig(x))


_eigvals: Op[...] = of_matrices(
    "eigvals",
    arguments=one_matrix,
    infer=_values_infer("eigvals", True),
    decompose=lambda x: eig(x).eigenvalues,
    may_overwrite=("x",),
    doc="Complex eigenvalues of square matrices.",
)


@with_form
def eigvals(x: Tensor, /) -> Tensor:
    """Return the complex eigenvalues of square matrices, in any order.

    >>> import tensorbus as tb
    >>> tb.linalg.eigvals(tb.asarray([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [(2+0j), (1+0j)]
    """
    return _eigvals(x)
