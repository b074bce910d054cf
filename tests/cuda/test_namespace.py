"""Long sorts, linear algebra and Fourier transforms from CuPy's namespace, beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda

from error_bounds import assert_within, gamma, of_product

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]

DTYPES = ("int8", "uint8", "int16", "int32", "int64", "uint64", "float16", "float32", "float64")
SHAPES = ((1 << 17,), (3, 9001), (40, 8193), (2, 20000, 2))


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Return values that come more than once, some of them not finite."""
    draw = np.random.default_rng(seed)
    if dtype.startswith("float"):
        x = draw.integers(-300, 300, shape).astype(dtype) / np.asarray(8, dtype)
        x.reshape(-1)[draw.integers(0, x.size, 40)] = draw.choice([np.nan, np.inf, -np.inf, -0.0], 40)
        return x
    about = np.iinfo(dtype)
    return draw.integers(max(about.min, -(1 << 40)), min(about.max, 1 << 40), shape, dtype=dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("descending", [False, True])
def test_long_rows_are_sorted_stably(dtype: str, shape: tuple[int, ...], descending: bool) -> None:
    x, axis = drawn(shape, dtype), min(len(shape) - 1, 1)
    own = tb.asarray(x, device="cuda")
    place = tb.argsort(own, axis=axis, descending=descending)
    if descending:
        back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
        wanted = x.shape[axis] - 1 - np.flip(back, axis)
    else:
        wanted = np.argsort(x, axis=axis, kind="stable")
    assert np.array_equal(place.numpy(), wanted)
    actual = tb.sort(own, axis=axis, descending=descending).numpy()
    assert np.array_equal(actual, np.take_along_axis(x, wanted, axis), equal_nan=dtype.startswith("float"))


def test_bfloat16_and_views_are_sorted() -> None:
    x = drawn((2, 10000), "float32")
    own = tb.asarray(x, device="cuda").to(tb.bfloat16)
    assert np.array_equal(
        tb.sort(own, axis=1).to(tb.float32).numpy(),
        np.sort(own.to(tb.float32).numpy(), axis=1),
        equal_nan=True,
    )
    turned = tb.asarray(np.ascontiguousarray(x.T), device="cuda").T
    assert np.array_equal(tb.sort(turned, axis=1).numpy(), np.sort(x, axis=1), equal_nan=True)


@pytest.mark.parametrize("k", [1, 50, 7000])
def test_topk_of_long_rows(k: int) -> None:
    x = np.random.default_rng(1).permutation(3 * 20000).reshape(3, 20000).astype(np.float32)
    values, places = tb.topk(tb.asarray(x, device="cuda"), k)
    wanted = -np.sort(-x, axis=1)[:, :k]
    assert np.array_equal(values.numpy(), wanted)
    assert np.array_equal(np.take_along_axis(x, places.numpy(), 1), wanted)


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 5)])
def test_factors_solve_what_they_came_from(dtype: str, lead: tuple[int, ...], compiles: bool) -> None:
    draw = np.random.default_rng(2)
    a = draw.standard_normal((*lead, 70, 70)).astype(dtype)
    if dtype.startswith("complex"):
        a = a + 1j * draw.standard_normal(a.shape).astype("float32")
    definite = (a @ a.conj().swapaxes(-1, -2) + 70 * np.eye(70)).astype(dtype)
    b = draw.standard_normal((*lead, 70, 4)).astype(dtype)

    def program(a, definite, b):
        lu, order = tb.linalg.lu_factor(definite)
        values, vectors = tb.linalg.eigh(definite)
        return (
            tb.linalg.cholesky(definite), tb.linalg.solve(definite, b), tb.linalg.inv(definite), lu, order,
            values, vectors, tb.linalg.svdvals(a), *tb.linalg.qr(a), tb.linalg.slogdet(definite)[1],
            tb.fft.fft(a), tb.fft.ifft(a, norm="ortho"),
        )  # fmt: skip

    run = tb.compile(program) if compiles else program
    operands = [tb.asarray(x, device="cuda") for x in (a, definite, b)]
    counts = tb.fallback_counts()
    actual = run(*operands)
    assert tb.fallback_counts() == counts or lead == (2, 5)
    lower, x, inverse, lu, order, values, vectors, singular, q, r, size, there, back = [
        v.numpy() for v in actual
    ]
    # Backward errors: factors are those of a matrix that is as far off as so many roundings of each element
    # explain, or, where they are made by reflections, the square of them.
    steps, reflections = 2 * gamma(3 * 70, dtype), 2 * gamma(70 * 70, dtype)
    norm, condition = np.linalg.norm(definite, 2, (-2, -1)), np.linalg.cond(definite)
    lengths = np.linalg.norm(a, axis=-2, keepdims=True)
    adjoint = lower.conj().swapaxes(-1, -2)
    assert_within(lower @ adjoint, definite, 2 * of_product(lower, adjoint, dtype))
    scale = norm[..., None, None] * np.linalg.norm(x, axis=-2, keepdims=True)
    assert_within(definite @ x, b, steps * scale)
    whole = np.broadcast_to(np.eye(70), a.shape)
    assert_within(definite @ inverse, whole, steps * condition[..., None, None])
    parts = np.tril(lu, -1) + np.eye(70, dtype=dtype), np.triu(lu)
    rows = np.take_along_axis(definite, order[..., None], -2)
    assert_within(parts[0] @ parts[1], rows, 2 * of_product(*parts, dtype))
    assert_within(definite @ vectors, vectors * values[..., None, :], reflections * norm[..., None, None])
    exact = np.linalg.svd(a, compute_uv=False)
    assert_within(singular, exact, reflections * exact[..., :1])
    assert_within(q @ r, a, reflections * lengths + 2 * of_product(q, r, dtype))
    assert_within(size, np.linalg.slogdet(definite)[1], 70 * steps * condition)
    # The norm of a row grows by the root of its length; primes of 70 are rounded after each other.
    rounded = 2 * gamma(4 * (2 + 5 + 7), dtype) * np.linalg.norm(a, axis=-1, keepdims=True)
    assert_within(there, np.fft.fft(a), rounded * np.sqrt(70))
    assert_within(back, np.fft.ifft(a, norm="ortho"), rounded)


def test_a_failed_factorization_says_why() -> None:
    zero = tb.zeros((2, 2), device="cuda")
    with pytest.raises(tb.LinAlgError, match="cholesky: a matrix is not positive definite"):
        tb.linalg.cholesky(zero - tb.eye(2, device="cuda"))
    with pytest.raises(tb.LinAlgError, match="singular"):
        tb.linalg.solve(zero, zero)
    with pytest.raises(tb.LinAlgError, match="zero on its diagonal"):
        tb.linalg.solve_triangular(zero, zero, upper=True)
    assert tb.sum(zero).item() == 0


def test_elements_none_and_results_in_streams() -> None:
    assert tb.linalg.inv(tb.zeros((0, 3, 3), device="cuda")).shape == (0, 3, 3)
    none = tb.zeros((0, 0), device="cuda")
    counts = tb.fallback_counts()
    assert tb.linalg.det(none).item() == 1
    assert tb.linalg.cholesky(none).shape == (0, 0)
    u, s, vh = tb.linalg.svd(tb.zeros((0, 3), device="cuda"))
    assert (u.shape, s.shape, vh.tolist()) == ((0, 0), (0,), np.eye(3).tolist())
    one = tb.full((4, 1), 2.0, device="cuda")
    assert tb.fft.rfft(one, axis=1).tolist() == tb.fft.fft(one, axis=1).tolist() == [[2 + 0j]] * 4
    assert tb.fft.irfft(tb.fft.rfft(one, axis=1), n=1, axis=1).tolist() == one.tolist()
    assert tb.fallback_counts() == counts
    with tb.stream(tb.Stream("cuda")):
        x = tb.ones((4, 512), device="cuda")
        y = tb.fft.irfft(tb.fft.rfft(x * 2))
        assert_within(y.numpy(), np.full((4, 512), 2.0), 2 * gamma(2 * 4 * 9, "float32"))


def test_memory_of_results_is_counted_and_given_back() -> None:
    stats = tb.Device("cuda").memory_stats()
    x = tb.fft.rfft(tb.ones((1024, 1024), device="cuda"))
    assert tb.Device("cuda").memory_stats().allocated >= stats.allocated + 1024 * 513 * 8
    del x
    assert tb.Device("cuda").memory_stats().allocated <= stats.allocated + (1 << 12)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_values_that_begin_anywhere_and_results_without_axes(dtype: str) -> None:
    draw = np.random.default_rng(3)
    own = tb.asarray(draw.standard_normal(1 + 60).astype("float32"), device="cuda")[1:].reshape((6, 10))
    rounded = (
        gamma(4 * (2 + 5), "float32") * np.sqrt(10) * np.linalg.norm(own.numpy(), axis=-1, keepdims=True)
    )
    assert_within(tb.fft.rfft(own).numpy(), np.fft.rfft(own.numpy().astype("f8")), rounded)
    a = draw.standard_normal((6, 6)).astype(dtype)
    sign, size = tb.linalg.slogdet(tb.asarray(a, device="cuda"))
    assert sign.shape == size.shape == tb.linalg.det(tb.asarray(a, device="cuda")).shape == ()
    exact = np.linalg.det(a.astype("c16"))
    bound = 6 * gamma(3 * 6, dtype) * np.linalg.cond(a) * abs(exact)
    assert_within(tb.linalg.det(tb.asarray(a, device="cuda")).numpy(), exact, bound)


def test_factors_of_matrices_without_inverse_are_finite() -> None:
    row = np.asarray([3 - 1j, 0.1 + 7j, 1e-3, 5j, -2, 0.3, 1 + 1j], "complex64")
    a = np.broadcast_to(row, (9, 7)).copy()
    lu, order = tb.linalg.lu_factor(tb.asarray(a, device="cuda"))
    lu, order = lu.numpy(), order.numpy()
    assert np.isfinite(lu).all()
    parts = (np.tril(lu, -1) + np.eye(9, 7)).astype(lu.dtype), np.triu(lu)[:7]
    assert_within(parts[0] @ parts[1], a[order], 2 * of_product(*parts, "complex64"))
