"""References of factorizations, norms and Fourier transforms.

Factors that are not unique are judged by what they are for: multiplied again they give the matrix, and those
that should be are orthonormal or triangular.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..native import Array
from .reference import Reference

Pairs = Iterator[tuple[Any, Any, Any]]
"""What should be equal, and the scale of the difference."""


def _adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


def _largest(x: Array, *_: Any, **__: Any) -> Any:
    """The size of the elements, times that of the matrix: the size of a product that gives it."""
    return np.abs(x).max(initial=1.0) * max(*x.shape[-2:], 1)


def _unitary(q: Array) -> Pairs:
    product = _adjoint(q) @ q
    yield product, np.broadcast_to(np.eye(product.shape[-1]), product.shape), max(q.shape[-2], 1)


def _svd(results: Sequence[Array], operands: Sequence[Array], attrs: Any) -> Pairs:
    (u, s, vh), (x,) = results, operands
    k = s.shape[-1]
    yield (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], x, _largest(x)
    yield from _unitary(u)
    yield from _unitary(_adjoint(vh))
    yield s, np.linalg.svd(x, compute_uv=False), _largest(x)


def _qr(results: Sequence[Array], operands: Sequence[Array], attrs: Any) -> Pairs:
    (q, r), (x,) = results, operands
    yield q @ r, x, _largest(x)
    yield r, np.triu(r), 0.0
    yield from _unitary(q)


def _eigh(results: Sequence[Array], operands: Sequence[Array], attrs: Any) -> Pairs:
    (values, vectors), (x,) = results, operands
    lower = np.tril(x)
    whole = lower + _adjoint(np.tril(x, -1))
    yield (vectors * values[..., None, :]) @ _adjoint(vectors), whole, _largest(x)
    yield from _unitary(vectors)
    yield values, np.sort(values, axis=-1), 0.0


def _eig(results: Sequence[Array], operands: Sequence[Array], attrs: Any) -> Pairs:
    (values, vectors), (x,) = results, operands
    yield x @ vectors, vectors * values[..., None, :], 16 * _largest(x)
    yield np.linalg.norm(vectors, axis=-2), np.ones(values.shape), max(x.shape[-1], 1)


def _eigvals(results: Sequence[Array], operands: Sequence[Array], attrs: Any) -> Pairs:
    """Their sum is the trace, the sum of their squares that of the square: they come in no order."""
    (values,), (x,) = results, operands
    for power in (1, 2):
        traces = np.trace(np.linalg.matrix_power(x, power), axis1=-2, axis2=-1) + 0j
        yield np.sum(values**power, axis=-1), traces, 4 * _largest(x) ** power * max(x.shape[-1], 1)


def _lu(results: Sequence[Array], operands: Sequence[Array], attrs: Any) -> Pairs:
    (packed, permutation), (x,) = results, operands
    k = min(x.shape[-2:])
    lower = np.tril(packed[..., :, :k], -1) + np.eye(x.shape[-2], k)
    rows = np.take_along_axis(x, permutation.astype(np.int64)[..., None], axis=-2)
    yield lower @ np.triu(packed[..., :k, :]), rows, _largest(x)


def _det_size(x: Array) -> Any:
    """Hadamard's bound of a determinant."""
    return np.prod(np.sqrt((np.abs(x) ** 2).sum(-1)), axis=-1)


def _slogdet(x: Array) -> Any:
    return tuple(np.linalg.slogdet(x))


def _adjugate(x: Array) -> Any:
    return np.linalg.det(x)[..., None, None] * np.linalg.inv(x)


def _solve_triangular(a: Array, b: Array, upper: bool, unit_diagonal: bool) -> Any:
    triangle = np.triu(a) if upper else np.tril(a)
    if unit_diagonal:
        one = np.eye(a.shape[-1])
        triangle = triangle * (1 - one) + one
    return np.linalg.solve(triangle, b)


def _condition(a: Array, *operands: Any, **_: Any) -> Any:
    """The growth that a solution may have, times its own size."""
    if not a.size:
        return 1.0
    grown = np.linalg.cond(a).max(initial=1.0)
    right = np.abs(operands[0]).max(initial=1.0) if operands else 1.0
    return grown * right * np.linalg.norm(np.linalg.inv(a), 2, axis=(-2, -1)).max(initial=1.0)


def _triangular_size(a: Array, b: Array, upper: bool, unit_diagonal: bool) -> Any:
    """A triangle with ones on its diagonal may multiply errors by its elements again and again."""
    solution = np.abs(_solve_triangular(a, b, upper, unit_diagonal)).max(initial=1.0) if a.size else 1.0
    return solution * (4.0 ** a.shape[-1] if unit_diagonal else max(a.shape[-1], 1))


def _pinv(x: Array, rtol: Array) -> Any:
    return np.linalg.pinv(x, rcond=float(rtol.reshape(-1)[0]) if rtol.size else None)


def _pinv_size(x: Array, rtol: Array) -> Any:
    return _largest(np.linalg.pinv(x)) * (np.linalg.cond(x).max(initial=1.0) if x.size else 1.0)


def _exponential(x: Array) -> Any:
    """Scale by a power of two, sum the power series, and square as often."""
    halvings = max(0, int(np.ceil(np.log2(max(np.abs(x).sum(-2).max(initial=0.0), 1.0)))) + 1)
    small = x / 2.0**halvings
    term = total = np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
    for k in range(1, 40):
        term = term @ small / k
        total = total + term
    for _ in range(halvings):
        total = total @ total
    return total


def _exponential_size(x: Array) -> Any:
    """Squaring loses a digit for each time that the norm doubles."""
    norm = np.abs(x).sum(-2).max(initial=0.0)
    return np.abs(_exponential(np.abs(x).astype(float))).max(initial=1.0) * max(norm, 1.0)


def _norm(x: Array, axis: Any, keepdims: bool, ord: float) -> Any:
    size = np.abs(x).astype(np.float64)
    if ord in (float("inf"), -float("inf")):
        empty: Any = {"initial": 0.0} if ord > 0 else {"initial": np.inf}
        return (np.max if ord > 0 else np.min)(size, axis=axis, keepdims=keepdims, **empty)
    if ord == 0:
        return np.sum(size != 0, dtype=np.float64, axis=axis, keepdims=keepdims)
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1 / ord)


def _waves(n: int, count: int, sign: int, norm: str, inverse: bool) -> Array:
    divisor = {"backward": n if inverse else 1, "ortho": n**0.5, "forward": 1 if inverse else n}[norm]
    return np.exp(sign * 2j * np.pi * (np.outer(np.arange(n), np.arange(count)) % n) / n) / divisor


def _fft(x: Array, axis: int, norm: str, inverse: bool) -> Any:
    n = x.shape[axis]
    rows = np.moveaxis(x, axis, -1) @ _waves(n, n, 1 if inverse else -1, norm, inverse)
    return np.moveaxis(rows, -1, axis)


def _rfft(x: Array, axis: int, norm: str) -> Any:
    n = x.shape[axis]
    return np.moveaxis(np.moveaxis(x, axis, -1) @ _waves(n, n // 2 + 1, -1, norm, False), -1, axis)


def _irfft(x: Array, n: int, axis: int, norm: str) -> Any:
    rows = np.moveaxis(x, axis, -1)[..., : n // 2 + 1]
    weights = np.full(n // 2 + 1, 2.0)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    out = (rows * weights) @ _waves(n, n // 2 + 1, 1, norm, True).T
    return np.moveaxis(out.real, -1, axis)


def _volume(x: Array, **_: Any) -> Any:
    return np.abs(x).sum(initial=1.0)


def _judged(judge: Callable[..., Any], ulps: float) -> Reference:
    return Reference(judge=judge, ulps=ulps)


REFERENCES: dict[str, Reference] = {
    "solve": Reference(function=np.linalg.solve, ulps=16, scale=_condition),
    "inv": Reference(function=np.linalg.inv, ulps=16, scale=_condition),
    "solve_triangular": Reference(function=_solve_triangular, ulps=64, scale=_triangular_size),
    "det": Reference(function=np.linalg.det, ulps=32, scale=_det_size),
    "slogdet": Reference(function=_slogdet, ulps=64, scale=lambda x: max(x.shape[-1], 1.0)),
    "adjugate": Reference(function=_adjugate, ulps=64, scale=lambda x: _det_size(x)[..., None, None]),
    "cholesky": Reference(function=lambda x: np.linalg.cholesky(x), ulps=16, scale=_largest),
    "lu_factor": _judged(_lu, 32), "qr": _judged(_qr, 32), "svd": _judged(_svd, 32),
    "eigh": _judged(_eigh, 32), "eig": _judged(_eig, 64), "eigvals": _judged(_eigvals, 64),
    "svdvals": Reference(function=lambda x: np.linalg.svd(x, compute_uv=False), ulps=32, scale=_largest),
    "eigvalsh": Reference(function=np.linalg.eigvalsh, ulps=32, scale=_largest),
    "pinv": Reference(function=_pinv, ulps=32, scale=_pinv_size),
    "matrix_exp": Reference(function=_exponential, ulps=32, scale=_exponential_size),
    "vector_norm": Reference(function=_norm, ulps=32),
    "fft": Reference(function=_fft, ulps=16, scale=_volume),
    "rfft": Reference(function=_rfft, ulps=16, scale=_volume),
    "irfft": Reference(function=_irfft, ulps=16, scale=_volume),
}  # fmt: skip
