"""What the derivatives of linear algebra and Fourier transforms are tried on: functions and their arguments.

Factors are unique only up to signs (or phases), so functions of them are taken that do not depend on these.
Symmetric operands are made of general ones, since only one triangle of them is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorbus as tb
from tensorbus import Tensor, fft, linalg
from tensorbus.ops.linalg.determinant import adjugate

Array = np.ndarray[Any, Any]
Function = Callable[..., Tensor]


def array(*shape: int, seed: int = 0) -> Array:
    """Return numbers that make matrices well conditioned, with eigenvalues and singular values far apart."""
    x = np.random.default_rng(seed).uniform(-1, 1, shape)
    return x + np.eye(shape[-2], shape[-1]) * np.arange(1, shape[-1] + 1) if len(shape) > 1 else x


def flat(*parts: Tensor) -> Tensor:
    """Return all elements of real tensors in one vector."""
    return tb.concat([tb.reshape(x, (-1,)) for x in parts])


def symmetric(x: Tensor) -> Tensor:
    return x + x.mT


def positive(x: Tensor) -> Tensor:
    return x @ x.mT + 0.5 * tb.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def eigenvectors(x: Tensor) -> Tensor:
    values, vectors = linalg.eigh(symmetric(x))
    return flat(values, vectors * vectors, vectors[..., 0, :] * vectors[..., 1, :])


def singular_vectors(x: Tensor, full_matrices: bool = False) -> Tensor:
    u, s, vh = linalg.svd(x, full_matrices=full_matrices)
    weights = tb.arange(1, s.shape[-1] + 1, dtype=s.dtype, device=s.device)
    return flat(s, u * u, vh * vh, u * weights @ vh)


def _lu(x: Tensor) -> Tensor:
    _, lower, upper = linalg.lu(x)
    return flat(lower, upper)


def _triangular(**attrs: Any) -> Function:
    return lambda a, b: linalg.solve_triangular(a, b, **attrs)


def spectrum(x: Tensor) -> Tensor:
    """Return real numbers that depend on all of a complex result."""
    return flat(tb.real(x), tb.imag(x), tb.abs(x))


def rotation(x: Tensor) -> Tensor:
    """Return eigenvalues and eigenvectors of general matrices, without their order and phases."""
    values, vectors = linalg.eig(x)
    sizes = tb.abs(vectors)
    return flat(tb.real(tb.sum(values**3, axis=-1)), sizes * sizes * tb.expand_dims(tb.abs(values), -2))


def pair(x: Tensor) -> Tensor:
    return tb.complex(x[0], x[1])


x3, x23, x33, x43, x34 = array(3), array(2, 3), array(3, 3), array(4, 3), array(3, 4)
stack, sides = array(2, 3, 3, seed=1), array(2, 3, 2, seed=2)
singular = array(3, 3)
singular[2] = singular[0] + singular[1]
thin = array(3, 3)
thin[:, 2] = thin[:, 0] - thin[:, 1]

REAL: dict[str, tuple[Function, list[Array]]] = {
    "solve": (linalg.solve, [stack, array(3, 2, seed=3)]),
    "solve one for many": (linalg.solve, [x33, sides]),
    "solve vector": (linalg.solve, [stack, x3]),
    "inv": (linalg.inv, [stack]),
    "det": (linalg.det, [stack]),
    "slogdet": (lambda x: linalg.slogdet(x).logabsdet, [stack]),
    "adjugate": (adjugate, [stack]),
    "cholesky": (lambda x: linalg.cholesky(positive(x)), [stack]),
    "cholesky upper": (lambda x: linalg.cholesky(positive(x), upper=True), [x33]),
    "cholesky_solve": (lambda x, b: linalg.cholesky_solve(b, linalg.cholesky(positive(x))), [x33, x34]),
    "solve_triangular": (_triangular(upper=False), [x33, sides]),
    "solve_triangular upper": (_triangular(upper=True), [stack, array(3, 2, seed=3)]),
    "solve_triangular right": (_triangular(upper=True, left=False), [x33, x23]),
    "solve_triangular ones": (_triangular(upper=False, unitriangular=True), [x33, x34]),
    "lu_factor": (_lu, [stack]), "lu_factor tall": (_lu, [x43]), "lu_factor wide": (_lu, [x34]),
    "lu_solve": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), [x33, sides]),
    "qr": (lambda x: flat(*linalg.qr(x)), [stack]),
    "qr tall": (lambda x: flat(*linalg.qr(x)), [x43]),
    "qr wide": (lambda x: flat(*linalg.qr(x)), [x34]),
    "qr complete": (lambda x: flat(*linalg.qr(x, mode="complete")), [x34]),
    "eigh": (eigenvectors, [stack]),
    "eigvalsh": (lambda x: linalg.eigvalsh(symmetric(x)), [stack]),
    "eig": (rotation, [array(3, 3, seed=5)]),
    "eigvals": (lambda x: tb.real(tb.sum(linalg.eigvals(x) ** 3, axis=-1)), [stack]),
    "svd": (singular_vectors, [stack]), "svd tall": (singular_vectors, [x43]),
    "svd wide": (singular_vectors, [x34]),
    "svd full": (lambda x: singular_vectors(x, full_matrices=True), [x33]),
    "svdvals": (linalg.svdvals, [array(2, 4, 3)]),
    "pinv square": (linalg.pinv, [x33]), "pinv tall": (linalg.pinv, [array(2, 4, 3)]),
    "pinv wide": (linalg.pinv, [x34]),
    "lstsq": (lambda a, b: flat(*linalg.lstsq(a, b)[:2]), [x43, array(4, 2, seed=3)]),
    "matrix_exp": (linalg.matrix_exp, [stack * 0.5]),
    "matrix_power": (lambda x: linalg.matrix_power(x, 5), [x33 * 0.5]),
    "matrix_power inverse": (lambda x: linalg.matrix_power(x, -2), [x33]),
    "multi_dot": (lambda *xs: linalg.multi_dot(xs), [x3, x34, x43, x3]),
    "vector_norm": (lambda x: linalg.vector_norm(x, axis=0), [x23]),
    **{
        f"vector_norm {p}": (lambda x, p=p: linalg.vector_norm(x, axis=1, keepdims=True, ord=p), [x23])
        for p in (0, 1, -1, 3, 2.5, 0.5, -2, float("inf"), -float("inf"))
    },
    **{
        f"matrix_norm {p}": (lambda x, p=p: linalg.matrix_norm(x, ord=p), [array(2, 4, 3)])
        for p in ("fro", "nuc", 1, -1, 2, -2, float("inf"))
    },
    "norm": (linalg.norm, [x23]), "cond": (linalg.cond, [x33]),
    "cond 1": (lambda x: linalg.cond(x, 1), [x33]),
    "cross": (linalg.cross, [x23, x3]), "outer": (linalg.outer, [x3, array(2, seed=4)]),
    "vecdot": (lambda x, y: linalg.vecdot(x, y, axis=-2), [array(2, 3, 4), array(3, 1)]),
    "diagonal above": (lambda x: linalg.diagonal(x, offset=1), [stack]),
    "diagonal below": (lambda x: linalg.diagonal(x, offset=-1), [x43]),
    "trace": (lambda x: linalg.trace(x, offset=-1), [stack]),
    "fft": (lambda x: spectrum(fft.fft(pair(x), axis=0)), [array(2, 4, 3)]),
    "fft of real": (lambda x: spectrum(fft.fft(x, n=5, norm="ortho")), [x23]),
    "fft back": (lambda x: spectrum(fft.ifft(pair(x), n=3, norm="forward")), [array(2, 2, 5)]),
    "rfft": (lambda x: spectrum(fft.rfft(x)), [array(2, 5)]),
    "rfft even": (lambda x: spectrum(fft.rfft(x, axis=0, norm="ortho")), [array(4, 2)]),
    "rfft of one": (lambda x: tb.real(fft.rfft(x, n=1)), [x23]),
    "irfft": (lambda x: fft.irfft(pair(x)), [array(2, 2, 4)]),
    "irfft odd": (lambda x: fft.irfft(pair(x), n=5, axis=0, norm="forward"), [array(2, 3, 2)]),
    "rfftn": (lambda x: spectrum(fft.rfftn(x)), [array(2, 3, 4)]),
    "irfftn": (lambda x: fft.irfftn(pair(x)), [array(2, 3, 3)]),
    "hfft": (lambda x: fft.hfft(pair(x)), [array(2, 2, 3)]),
    "ihfft": (lambda x: spectrum(fft.ihfft(x)), [x23]),
    "fftshift": (fft.fftshift, [array(2, 5)]),
}  # fmt: skip
"""Real functions of real arrays, differentiable twice there."""

SINGULAR: dict[str, tuple[Function, list[Array]]] = {
    "det": (linalg.det, [singular]),
    "pinv": (lambda x: linalg.pinv(x[:, :2] @ x[:2]), [x33]),
    "svdvals of equals": (lambda x: tb.sum(linalg.svdvals(x)), [2.0 * np.eye(3)]),
    "eigvalsh of equals": (lambda x: tb.sum(linalg.eigvalsh(symmetric(x))), [np.eye(3)]),
    "a function of equals": (lambda x: _power_by_values(symmetric(x)), [np.diag([1.0, 1.0, 2.0])]),
}
"""Functions whose first derivative exists where a factor is not unique."""


def _power_by_values(x: Tensor) -> Tensor:
    values, vectors = linalg.eigh(x)
    return linalg.trace(vectors * tb.expand_dims(values**2, -2) @ vectors.mT)


def mix(*xs: Tensor) -> Tensor:
    """Return real numbers that depend on the real and imaginary parts of all."""
    return flat(*[part for x in xs for part in (tb.real(x), tb.imag(x), tb.real(x * x))])


def _hermitian(x: Tensor) -> Tensor:
    return x + tb.conj(x.mT)


def _positive(x: Tensor) -> Tensor:
    return x @ tb.conj(x.mT) + tb.eye(x.shape[-1], dtype=x.dtype)


def _projections(x: Tensor) -> Tensor:
    values, vectors = linalg.eigh(_hermitian(x))
    weights = tb.arange(1, 4, dtype=values.dtype)
    return flat(values, mix(vectors * weights @ tb.conj(vectors.mT)))


def _singular_projections(x: Tensor) -> Tensor:
    u, s, vh = linalg.svd(x, full_matrices=False)
    weights = tb.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    left, right = u * weights @ tb.conj(u.mT), tb.conj(vh.mT) * weights @ vh
    return flat(s, mix(left, right, u * weights @ vh))


def _spectral_projections(x: Tensor) -> Tensor:
    values, vectors = linalg.eig(x)
    inverse = linalg.inv(vectors)
    return mix(vectors * tb.expand_dims(values**2, -2) @ inverse, tb.sum(values**3, axis=-1))


def _lengths(x: Tensor) -> Tensor:
    """A function that sees that eigenvectors have length 1."""
    values, vectors = linalg.eig(x)
    return tb.sum(tb.abs(vectors) ** 4 * tb.expand_dims(tb.abs(values), -2), axis=(-2, -1))


COMPLEX: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "solve": (lambda a, b: mix(linalg.solve(a, b)), [(2, 3, 3), (3, 2)]),
    "inv": (lambda x: mix(linalg.inv(x)), [(3, 3)]), "det": (lambda x: mix(linalg.det(x)), [(3, 3)]),
    "adjugate": (lambda x: mix(adjugate(x)), [(3, 3)]),
    "slogdet": (lambda x: mix(*linalg.slogdet(x)), [(3, 3)]),
    "cholesky": (lambda x: mix(linalg.cholesky(_positive(x))), [(3, 3)]),
    "cholesky upper": (lambda x: mix(linalg.cholesky(_positive(x), upper=True)), [(3, 3)]),
    "cholesky_solve": (
        lambda x, b: mix(linalg.cholesky_solve(b, linalg.cholesky(_positive(x)))), [(3, 3), (3, 2)],
    ),
    "solve_triangular": (lambda a, b: mix(_triangular(upper=True)(a, b)), [(3, 3), (2, 3, 2)]),
    "lu": (lambda x: mix(*linalg.lu(x)[1:]), [(2, 3, 3)]),
    "lu tall": (lambda x: mix(*linalg.lu(x)[1:]), [(4, 3)]),
    "lu wide": (lambda x: mix(*linalg.lu(x)[1:]), [(3, 4)]),
    "qr": (lambda x: mix(*linalg.qr(x)), [(3, 3)]), "qr tall": (lambda x: mix(*linalg.qr(x)), [(4, 3)]),
    "qr wide": (lambda x: mix(*linalg.qr(x)), [(3, 4)]),
    "eigh": (_projections, [(3, 3)]), "eigvalsh": (lambda x: linalg.eigvalsh(_hermitian(x)), [(3, 3)]),
    "eig": (_spectral_projections, [(3, 3)]), "eig lengths": (_lengths, [(3, 3)]),
    "eigvals": (lambda x: mix(tb.sum(linalg.eigvals(x) ** 3, axis=-1)), [(3, 3)]),
    "svd": (_singular_projections, [(3, 3)]), "svd tall": (_singular_projections, [(4, 3)]),
    "svd wide": (_singular_projections, [(3, 4)]), "svdvals": (linalg.svdvals, [(3, 4)]),
    "pinv": (lambda x: mix(linalg.pinv(x)), [(4, 3)]), "pinv wide": (lambda x: mix(linalg.pinv(x)), [(3, 4)]),
    "lstsq": (lambda a, b: mix(*linalg.lstsq(a, b)[:2]), [(4, 3), (4, 2)]),
    "matrix_exp": (lambda x: mix(linalg.matrix_exp(x)), [(3, 3)]),
    "matrix_power": (lambda x: mix(linalg.matrix_power(x, -3)), [(3, 3)]),
    **{
        f"vector_norm {p}": (lambda x, p=p: linalg.vector_norm(x, ord=p), [(2, 3)])
        for p in (1, 2, 3, -1, float("inf"))
    },
    "matrix_norm": (lambda x: linalg.matrix_norm(x, ord="nuc"), [(3, 3)]),
    "vecdot": (lambda x, y: mix(linalg.vecdot(x, y)), [(2, 3), (3,)]),
    "cross": (lambda x, y: mix(linalg.cross(x, y)), [(2, 3), (3,)]),
    "trace": (lambda x: mix(linalg.trace(x)), [(3, 3)]),
    "fft": (lambda x: mix(fft.fft(x, n=4)), [(2, 3)]), "ifft": (lambda x: mix(fft.ifft(x, axis=0)), [(4, 2)]),
    "irfft": (lambda x: fft.irfft(x), [(2, 3)]), "irfft odd": (lambda x: fft.irfft(x, n=5), [(3,)]),
    "hfft": (lambda x: fft.hfft(x, n=5, norm="ortho"), [(3,)]),
}  # fmt: skip
"""Real functions of complex arrays of these shapes."""
