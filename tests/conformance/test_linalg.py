"""Linear algebra and Fourier transforms as users call them, against NumPy, on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor, fft, linalg
from tensorbus.dtypes import definition as dt
from tensorbus.func import vmap

from agreement import check
from samples import Array

INF = float("inf")
RNG = np.random.default_rng(5)
A = RNG.uniform(-1, 1, (2, 3, 3)) + 2 * np.eye(3)
B = RNG.uniform(-1, 1, (2, 3, 2))
X = RNG.uniform(-1, 1, (2, 3, 4))
V = RNG.uniform(-1, 1, 3)
SPD = A @ np.swapaxes(A, -1, -2) + np.eye(3)
LOW_RANK = X[0, :, :1] @ X[0, :1]
E = np.zeros((2, 0, 3))
WHOLE = np.arange(24).reshape(2, 3, 4)


def put(device: str, *arrays: Any) -> list[Tensor]:
    """Return the arrays on a device, floats as float32."""
    operands = [np.asarray(a) for a in arrays]
    return [tb.asarray(a.astype(np.float32) if a.dtype.kind == "f" else a, device=device) for a in operands]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "solve a vector": (linalg.solve, (A, V),
        np.linalg.solve(A, np.broadcast_to(V[:, None], (2, 3, 1)))[..., 0]),
    "solve broadcasts": (linalg.solve, (A[0], B), np.linalg.solve(A[0], B)),
    "solve from the right": (
        lambda a, b: linalg.solve_triangular(a, b, upper=True, left=False), (A, B.mT),
        B.mT @ np.linalg.inv(np.triu(A)),
    ),
    "cholesky upper": (lambda x: linalg.cholesky(x, upper=True), (SPD,), np.linalg.cholesky(SPD).mT),
    "cholesky reads one triangle": (linalg.cholesky, (np.tril(SPD),), np.linalg.cholesky(SPD)),
    "cholesky_solve": (
        lambda b, x: linalg.cholesky_solve(b, linalg.cholesky(x)), (B, SPD), np.linalg.solve(SPD, B),
    ),
    "cholesky_solve upper": (
        lambda b, x: linalg.cholesky_solve(b, linalg.cholesky(x, upper=True), upper=True), (B, SPD),
        np.linalg.solve(SPD, B),
    ),
    "lu_solve": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), (A[0], B), np.linalg.solve(A[0], B)),
    "lu_solve(adjoint)": (
        lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b, adjoint=True),
        (A[0], B), np.linalg.solve(A[0].T, B),
    ),
    "lu_solve(left=False)": (
        lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False),
        (A[0], B), np.linalg.solve(A[0].T, B).mT,
    ),
    "lu_solve(adjoint, left=False)": (
        lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b.mT, left=False, adjoint=True),
        (A[0], B), np.linalg.solve(A[0], B).mT,
    ),
    "lu of a permutation": (lambda x: linalg.lu(x).P, (np.eye(3)[[2, 0, 1]],), np.eye(3)[[2, 0, 1]]),
    "slogdet of a singular matrix": (lambda x: linalg.slogdet(x).logabsdet, (np.zeros((2, 2)),), -INF),
    "its sign": (lambda x: linalg.slogdet(x).sign, (np.zeros((2, 2)),), 0.0),
    "det of a singular matrix": (linalg.det, (np.ones((2, 2)),), 0.0),
    "det of nothing": (linalg.det, (np.zeros((2, 0, 0)),), np.ones(2)),
    "inv of nothing": (linalg.inv, (np.zeros((0, 0)),), np.zeros((0, 0))),
    "pinv of low rank": (linalg.pinv, (LOW_RANK,), np.linalg.pinv(LOW_RANK)),
    "pinv of nothing": (linalg.pinv, (E,), np.zeros((2, 3, 0))),
    "pinv with a tolerance": (
        lambda x: linalg.pinv(x, rtol=0.6), (np.diag([1.0, 0.5]),), np.diag([1.0, 0.0]),
    ),
    "pinv with tolerances": (
        lambda x, rtol: linalg.pinv(x, rtol=rtol),
        (np.stack([np.diag([1.0, 0.5])] * 2), np.array([0.6, 0.4])),
        np.stack([np.diag([1.0, 0.0]), np.diag([1.0, 2.0])]),
    ),
    "matrix_rank": (linalg.matrix_rank, (np.stack([A[0], LOW_RANK[:, :3]]),), np.array([3, 1])),
    "matrix_rank of nothing": (linalg.matrix_rank, (E,), np.zeros(2, int)),
    "matrix_rank with tolerances": (
        lambda x, rtol: linalg.matrix_rank(x, rtol=rtol),
        (np.stack([np.diag([1.0, 0.5])] * 2), np.array([0.6, 0.4])),
        np.array([1, 2]),
    ),
    "lstsq tall": (
        lambda a, b: linalg.lstsq(a, b).solution, (X[0].T, WHOLE[0].T * 1.0),
        np.linalg.lstsq(X[0].T, WHOLE[0].T)[0],
    ),
    "lstsq residuals": (
        lambda a, b: linalg.lstsq(a, b).residuals, (X[0].T, X[1].T), np.linalg.lstsq(X[0].T, X[1].T)[1],
    ),
    "lstsq of low rank": (
        lambda a, b: linalg.lstsq(a, b).solution, (LOW_RANK, V), np.linalg.lstsq(LOW_RANK, V, rcond=1e-6)[0],
    ),
    "lstsq rank": (lambda a, b: linalg.lstsq(a, b).rank, (LOW_RANK, V), np.array(1)),
    "cond": (linalg.cond, (A,), np.linalg.cond(A)),
    "cond -2": (lambda x: linalg.cond(x, -2), (A,), np.linalg.cond(A, -2)),
    "cond fro": (lambda x: linalg.cond(x, "fro"), (A,), np.linalg.cond(A, "fro")),
    **{
        f"matrix_norm {p}": (lambda x, p=p: linalg.matrix_norm(x, ord=p), (X,),
            np.linalg.matrix_norm(X, ord=p))
        for p in ("fro", "nuc", 1, -1, 2, -2, INF, -INF)
    },
    "matrix_norm keepdims": (
        lambda x: linalg.matrix_norm(x, ord=1, keepdims=True), (X,),
        np.linalg.matrix_norm(X, ord=1, keepdims=True),
    ),
    "matrix_norm of whole numbers": (
        lambda x: linalg.matrix_norm(x, ord=INF), (WHOLE,), np.linalg.matrix_norm(WHOLE * 1.0, ord=INF),
    ),
    "matrix_norm of nothing": (lambda x: linalg.matrix_norm(x, ord=2), (E,), np.zeros(2)),
    **{
        f"norm {p} {axis}": (
            lambda x, p=p, axis=axis: linalg.norm(x, p, axis), (X,),
            np.linalg.norm(X, p, axis),
        )
        for p, axis in ((None, 1), (3, 0), ("fro", (0, 2)), (1, (2, 0)), (INF, (0, 1)), ("nuc", (1, 2)),
            (None, (0, 2)))
    },
    "norm of all": (linalg.norm, (X,), np.linalg.norm(X)),
    "norm of a matrix": (lambda x: linalg.norm(x, 1), (X[0],), np.linalg.norm(X[0], 1)),
    "norm of a vector": (lambda x: linalg.norm(x, 0), (V,), np.linalg.norm(V, 0)),
    "norm keepdims": (
        lambda x: linalg.norm(x, 1, (2, 0), keepdims=True), (X,), np.linalg.norm(X, 1, (2, 0), keepdims=True),
    ),
    "vector_norm far out": (lambda x: linalg.vector_norm(x, ord=20), (np.array([1e5, 1e5]),), 1e5 * 2**0.05),
    "vector_norm of an infinity": (lambda x: linalg.vector_norm(x, ord=3), (np.array([INF, 1.0]),), INF),
    "vector_norm of nothing": (lambda x: linalg.vector_norm(x, ord=INF, axis=1), (E,), np.zeros((2, 3))),
    "the smallest of nothing": (lambda x: linalg.vector_norm(x, ord=-2, axis=1), (E,), np.full((2, 3), INF)),
    "matrix_power": (lambda x: linalg.matrix_power(x, 6), (A,), np.linalg.matrix_power(A, 6)),
    "matrix_power 0": (lambda x: linalg.matrix_power(x, 0), (A,), np.linalg.matrix_power(A, 0)),
    "matrix_power -3": (lambda x: linalg.matrix_power(x, -3), (A,), np.linalg.matrix_power(A, -3)),
    "matrix_power of whole numbers": (
        lambda x: linalg.matrix_power(x, 3), (WHOLE[:, :, :3],), np.linalg.matrix_power(WHOLE[:, :, :3], 3),
    ),
    "multi_dot": (
        lambda *xs: linalg.multi_dot(xs), (V, A[0], X[0], X[1].T, B[0]), V @ A[0] @ X[0] @ X[1].T @ B[0],
    ),
    "multi_dot of two": (lambda *xs: linalg.multi_dot(xs), (V, V), V @ V),
    "matrix_exp of a large matrix": (linalg.matrix_exp, (np.diag([-50.0, 3.0]),),
        np.diag(np.exp([-50.0, 3.0]))),
    "outer": (linalg.outer, (V, X[0, 0]), np.outer(V, X[0, 0])),
    "cross": (linalg.cross, (A, V), np.cross(A, V)),
    "cross axis": (lambda x, y: linalg.cross(x, y, axis=-2), (X, A[0, :, :1]),
        np.cross(X, A[0, :, :1], axis=-2)),
    "vecdot": (lambda x, y: tb.vecdot(x, y, axis=-2), (X, B[:, :, :1]), (X * B[:, :, :1]).sum(-2)),
    "vecdot of whole numbers": (tb.vecdot, (WHOLE, WHOLE[0]), (WHOLE * WHOLE[0]).sum(-1)),
    "diagonal": (lambda x: linalg.diagonal(x, offset=2), (X,), np.diagonal(X, 2, -2, -1)),
    "diagonal outside": (lambda x: linalg.diagonal(x, offset=-7), (X,), np.zeros((2, 0))),
    "trace": (lambda x: linalg.trace(x, offset=1), (X,), np.trace(X, 1, -2, -1)),
    "trace of whole numbers": (linalg.trace, (WHOLE.astype(np.int8),), np.trace(WHOLE, 0, -2, -1)),
    "trace in a dtype": (lambda x: linalg.trace(x, dtype="float32"), (WHOLE,),
        np.trace(WHOLE, 0, -2, -1).astype(float)),
    "fft n": (lambda x: fft.fft(x, n=6, norm="ortho"), (X,), np.fft.fft(X, 6, norm="ortho")),
    "ifft n": (lambda x: fft.ifft(x, n=3, axis=1), (X,), np.fft.ifft(X, 3, 1)),
    "fftn": (fft.fftn, (X,), np.fft.fftn(X)),
    "fftn s": (
        lambda x: fft.fftn(x, s=(5, -1), axes=(2, 0), norm="forward"), (X,),
        np.fft.fftn(X, (5, 2), (2, 0), "forward"),
    ),
    "ifftn": (lambda x: fft.ifftn(x, axes=(0, 1)), (X,), np.fft.ifftn(X, axes=(0, 1))),
    "rfft n": (lambda x: fft.rfft(x, n=5, axis=0, norm="forward"), (X,), np.fft.rfft(X, 5, 0, "forward")),
    "irfft": (lambda x: fft.irfft(x + 0j), (X,), np.fft.irfft(X)),
    "irfft n": (lambda x: fft.irfft(x + 0j, n=9, norm="ortho"), (X,), np.fft.irfft(X, 9, norm="ortho")),
    "rfftn": (lambda x: fft.rfftn(x, s=(3, 5), axes=(0, 1)), (X,), np.fft.rfftn(X, (3, 5), (0, 1))),
    "irfftn": (lambda x: fft.irfftn(x * 1j), (X,), np.fft.irfftn(X * 1j)),
    "irfftn s": (
        lambda x: fft.irfftn(x * 1j, s=(3, 5), axes=(0, 2)), (X,), np.fft.irfftn(X * 1j, (3, 5), (0, 2)),
    ),
    "fft2": (fft.fft2, (X,), np.fft.fft2(X)),
    "ifft2 s": (lambda x: fft.ifft2(x, s=(3, 4), axes=(0, 1)), (X,), np.fft.ifft2(X, (3, 4), (0, 1))),
    "rfft2": (lambda x: fft.rfft2(x, norm="ortho"), (X,), np.fft.rfft2(X, norm="ortho")),
    "irfft2": (lambda x: fft.irfft2(x * 1j), (X,), np.fft.irfft2(X * 1j)),
    "hfft": (lambda x: fft.hfft(x * 1j, n=5, norm="forward"), (X,), np.fft.hfft(X * 1j, 5, norm="forward")),
    "ihfft": (lambda x: fft.ihfft(x, n=5), (X,), np.fft.ihfft(X, 5)),
    "fft of whole numbers": (fft.fft, (WHOLE,), np.fft.fft(WHOLE)),
    "fftshift": (fft.fftshift, (WHOLE,), np.fft.fftshift(WHOLE)),
    "fftshift axes": (lambda x: fft.fftshift(x, axes=(1, -1)), (WHOLE,), np.fft.fftshift(WHOLE, (1, 2))),
    "ifftshift": (lambda x: fft.ifftshift(x, axes=1), (WHOLE,), np.fft.ifftshift(WHOLE, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_function(device: str, name: str) -> None:
    f, arrays, expected = CASES[name]
    actual = f(*put(device, *arrays))
    assert str(actual.device) == f"{device}:0"
    check(
        actual.numpy(), expected, 256, np.abs(np.where(np.isfinite(expected), expected, 0)).max(initial=1.0)
    )


def test_frequencies(device: str) -> None:
    for n in (1, 2, 7, 8):
        for ours, theirs in ((fft.fftfreq, np.fft.fftfreq), (fft.rfftfreq, np.fft.rfftfreq)):
            actual = ours(n, d=0.3, device=device)
            assert (actual.dtype, str(actual.device)) == (tb.float32, f"{device}:0")
            check(actual.numpy(), theirs(n, 0.3), 4, 0.0)
    assert fft.fftfreq(3, dtype="float16", device=device).dtype is tb.float16


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (3, 3), (2, 0), (0, 2), (2, 3, 1)])
def test_factors_are_orthonormal_and_named(device: str, shape: tuple[int, ...]) -> None:
    (x,) = put(device, RNG.uniform(-1, 1, shape))
    *lead, m, n = shape
    k = min(m, n)
    for full in (False, True):
        u, s, vh = (parts := linalg.svd(x, full_matrices=full))
        assert (parts.U.shape, parts.S.shape, parts.Vh.shape) == (
            (*lead, m, m if full else k), (*lead, k), (*lead, n if full else k, n),
        )  # fmt: skip
        _orthonormal(u)
        _orthonormal(vh.mT)
        assert np.all(np.diff(s.numpy()) <= 0)
    for mode, width in (("reduced", k), ("complete", m)):
        factors = linalg.qr(x, mode=mode)
        assert (factors.Q.shape, factors.R.shape) == ((*lead, m, width), (*lead, width, n))
        _orthonormal(factors.Q)
        assert np.array_equal(factors.R.numpy(), np.triu(factors.R.numpy()))


def _orthonormal(q: Tensor) -> None:
    actual = q.numpy()
    check(
        np.swapaxes(actual, -1, -2) @ actual,
        np.broadcast_to(np.eye(actual.shape[-1]), (*actual.shape[:-2], actual.shape[-1], actual.shape[-1])),
        64,
        1.0,
    )


def test_eigenvectors_are_named_and_of_length_1(device: str) -> None:
    (x,) = put(device, SPD)
    factors = linalg.eigh(x)
    assert np.all(np.diff(factors.eigenvalues.numpy()) >= 0)
    _orthonormal(factors.eigenvectors)
    general = linalg.eig(put(device, A)[0])
    assert general.eigenvalues.dtype is general.eigenvectors.dtype is tb.complex64
    check(np.linalg.norm(general.eigenvectors.numpy(), axis=-2), np.ones((2, 3)), 16, 1.0)
    assert linalg.slogdet(x)._fields == ("sign", "logabsdet")


def test_rows_are_exchanged_to_keep_factors_small(device: str) -> None:
    (x,) = put(device, RNG.uniform(-1, 1, (2, 70, 70)))
    packed, permutation = linalg.lu_factor(x)
    assert permutation.dtype is tb.int64
    assert np.abs(np.tril(packed.numpy(), -1)).max() <= 1
    assert np.array_equal(np.sort(permutation.numpy()), np.broadcast_to(np.arange(70), (2, 70)))
    p, lower, upper = linalg.lu(x)
    check((p @ lower @ upper).numpy(), x.numpy().astype(float), 64, 10.0)


def test_large_triangles(device: str) -> None:
    a, b = put(
        device, np.tril(RNG.uniform(-1, 1, (100, 100)) / 100) + np.eye(100), RNG.uniform(-1, 1, (2, 100, 3))
    )
    for upper, matrix in ((False, a), (True, a.mT)):
        actual = linalg.solve_triangular(matrix, b, upper=upper).numpy()
        check(actual, np.linalg.solve(matrix.numpy().astype(float), b.numpy().astype(float)), 64, 1.0)


ERRORS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]] = {
    "inv of a singular matrix": (linalg.inv, (np.zeros((2, 2)),), tb.LinAlgError,
        "inv: a matrix is singular"),
    "solve": (linalg.solve, (np.ones((2, 2)), V[:2]), tb.LinAlgError, "solve: a matrix is singular"),
    "cholesky": (linalg.cholesky, (-np.eye(2),), tb.LinAlgError,
        "cholesky: a matrix is not positive definite"),
    "a triangle with a zero": (
        lambda a: linalg.solve_triangular(a, a, upper=True), (np.triu(np.ones((2, 2)), 1),), tb.LinAlgError,
        "solve_triangular: a matrix has a zero on its diagonal",
    ),
    "det of a rectangle": (linalg.det, (X,), tb.ShapeError,
        r"det: square matrices are needed, .*\(2, 3, 4\) differ"),
    "eigh of a rectangle": (linalg.eigh, (X,), tb.ShapeError, "eigh: square matrices"),
    "svd of a vector": (linalg.svd, (V,), tb.ShapeError,
        r"svd: matrices need at least 2 dimensions, got shape \(3,\)"),
    "right-hand sides": (linalg.solve, (A, X.mT), tb.ShapeError, "solve: .* the latter need 3 rows"),
    "inv of halves": (lambda x: linalg.inv(x.to("float16")), (A,), tb.DtypeError,
        "inv: not defined for float16"),
    "qr mode": (lambda x: linalg.qr(x, mode="r"), (A,), tb.ArgumentError, "mode is 'r'; it must be"),
    "matrix_norm ord": (lambda x: linalg.matrix_norm(x, ord=3), (A,), tb.ArgumentError,
        "ord is 3; it must be one of"),
    "vector_norm ord": (
        lambda x: linalg.vector_norm(x, ord="fro"), (V,),
        tb.ArgumentError, "ord is 'fro'",
    ),
    "norm over three axes": (lambda x: linalg.norm(x, 1), (X,), tb.ShapeError,
        "one axis or two different ones"),
    "a broken power": (
        lambda x: linalg.matrix_power(x, 1.5), (A,),
        tb.ArgumentError, "an integer, got 1.5",
    ),
    "cross of pairs": (linalg.cross, (V[:2], V[:2]), tb.ShapeError, "have 2 and 2 elements; both need 3"),
    "an axis of two meanings": (
        lambda x, y: linalg.cross(x, y, axis=0), (A[0], A), tb.ShapeError, "count it from the back",
    ),
    "vecdot": (tb.vecdot, (V, V[:1]), tb.ShapeError, "have 3 and 1 elements; both need the same number"),
    "outer": (linalg.outer, (X, V), tb.ShapeError, "outer: two vectors are needed"),
    "multi_dot": (lambda *xs: linalg.multi_dot(xs), (A[0], V, A[0]), tb.ShapeError,
        "vectors only at the ends"),
    "lstsq": (linalg.lstsq, (X[0], X[0].T), tb.ShapeError, "lstsq: .* the latter need 3 rows"),
    "fft norm": (lambda x: fft.fft(x, norm="orto"), (X,), tb.ArgumentError, "Did you mean 'ortho'"),
    "fft n": (lambda x: fft.fft(x, n=0), (X,), tb.ShapeError, "n is 0 over axis -1"),
    "fft of nothing": (lambda x: fft.rfft(x, axis=1), (E,), tb.ShapeError, "rfft: n is 0 over axis 1"),
    "irfft of one": (lambda x: fft.irfft(x[..., :1]), (X,), tb.ShapeError, "irfft: n is 0"),
    "rfft of complex": (lambda x: fft.rfft(x + 0j), (X,), tb.DtypeError,
        "rfft: not defined for complex64.*real part"),
    "more lengths than axes": (lambda x: fft.fftn(x, s=(2,) * 4), (X,), tb.AxisError, "fftn: axis -4"),
    "axes twice": (lambda x: fft.fftn(x, axes=(0, -3)), (X,), tb.ArgumentError, "different axes"),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error(device: str, name: str) -> None:
    f, arrays, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        f(*put(device, *arrays))


VMAPPED: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "lu_solve": (lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), (A, B)),
    "rfft": (lambda x: fft.irfft(fft.rfft(x, axis=0), n=3, axis=0), (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", VMAPPED)
def test_vmap_is_one_after_the_other(device: str, name: str) -> None:
    f, arrays = VMAPPED[name]
    xs = put(device, *arrays)
    each = [f(*(x[k] for x in xs)).numpy() for k in range(2)]
    check(vmap(f)(*xs).numpy(), np.stack(each).astype(float), 64, 1.0)


def test_the_gradient_of_a_spectrum(device: str) -> None:
    x = put(device, X)[0].requires_grad_()
    spectrum = fft.rfft(x)
    tb.sum(fft.irfft(spectrum * tb.conj(spectrum))).backward()
    assert x.grad is not None
    assert x.grad.dtype is tb.float32
    check(x.grad.numpy(), np.broadcast_to(2 * X.sum(-1, keepdims=True), X.shape), 64, 4.0)


def test_dtypes_of_results(device: str) -> None:
    have = tb.device(device).properties.dtypes
    for d in (dt.float32, dt.float64, dt.complex64, dt.complex128):
        if d not in have:
            with pytest.raises(tb.UnsupportedDtypeError, match=f"has no {d}"):
                tb.zeros((2, 2), dtype=d, device=device)
            continue
        x = tb.eye(2, dtype=d, device=device)
        assert (linalg.inv(x).dtype, linalg.eigvalsh(x).dtype, linalg.norm(x).dtype) == (
            d,
            dt.real_of(d),
            dt.real_of(d),
        )
        assert (linalg.eigvals(x).dtype, fft.fft(x).dtype) == (dt.complex_of(d),) * 2
