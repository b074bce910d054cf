"""Results over the shapes and dtypes that compiled kernels have schedules of their own for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.nn import functional
from tensorbus.ops.indexing.gather_scatter import scatter as scatter_op

from error_bounds import assert_within, gamma, stored, unit

RNG = np.random.default_rng(21)
SHAPES = (((1000, 70), 0), ((3, 90, 1100), 1), ((40, 5000), 0), ((9, 33), 0), ((5000, 2), 0), ((700, 10), 1))
DTYPES = (tb.float32, tb.float64, tb.float16, tb.bfloat16, tb.int8, tb.int32, tb.int64, tb.uint8)


def drawn(shape: tuple[int, ...], dtype: tb.DType, nan: float = 0.0) -> tuple[tb.Tensor, Any]:
    """Return few different values, some of them NaN, and what they are exactly."""
    values = RNG.integers(0, 90, shape).astype("f8")
    if dtype.is_floating:
        values[RNG.random(shape) < nan] = np.nan
    x = tb.asarray(values).to(dtype)
    return x, x.to(tb.float64).numpy()


@pytest.mark.parametrize("nan", [0.0, 0.01])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_extremes_and_their_places(dtype: tb.DType, nan: float) -> None:
    if nan and not dtype.is_floating:
        return
    for shape, axis in SHAPES:
        x, exact = drawn(shape, dtype, nan)
        for name in ("argmax", "argmin", "max", "min"):
            result = tb.compile(partial(getattr(tb, name), axis=axis))(x)
            wanted = getattr(np, name)(exact, axis=axis)
            np.testing.assert_array_equal(result.to(tb.float64).numpy(), wanted)


@pytest.mark.parametrize("density", [0.0, 0.001, 0.999, 1.0])
def test_any_and_all(density: float) -> None:
    for shape, axis in SHAPES:
        x = RNG.random(shape) < density
        for name in ("any", "all"):
            result = tb.compile(partial(getattr(tb, name), axis=axis))(tb.asarray(x))
            np.testing.assert_array_equal(result.numpy(), getattr(np, name)(x, axis=axis))


@pytest.mark.parametrize("dtype", [tb.float32, tb.float16, tb.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(2, 90_001), (300, 1003), (4000, 10)])
def test_gradients_of_cross_entropy(shape: tuple[int, int], dtype: tb.DType) -> None:
    x = tb.asarray(RNG.standard_normal(shape).astype("f4")).to(dtype)
    labels = RNG.integers(0, shape[1], shape[0])

    def gradient(x: Any, labels: Any) -> Any:
        x = x.detach().requires_grad_()
        functional.cross_entropy(x, labels, reduction="sum").backward()
        return x.grad

    actual = tb.compile(gradient)(x, tb.asarray(labels)).to(tb.float64).numpy()
    exact = x.to(tb.float64).numpy()
    wanted = np.exp(exact - exact.max(1, keepdims=True))
    wanted /= wanted.sum(1, keepdims=True)
    shares = wanted.copy()
    wanted[np.arange(shape[0]), labels] -= 1
    # Logarithms of shares are stored, and what is rounded of one moves its share as far.
    relative = gamma(shape[1] + 8, "float32") + unit(dtype) * abs(np.log(shares))
    assert_within(actual, wanted, relative * shares + 2 * stored(wanted, dtype))


@pytest.mark.parametrize("wrong", [-1, 50])
def test_a_wrong_row_is_reported_and_right_ones_are_found(wrong: int) -> None:
    weight = RNG.standard_normal((50, 33)).astype("f4")
    rows = RNG.integers(0, 50, 700)
    look = tb.compile(functional.embedding)
    np.testing.assert_array_equal(look(tb.asarray(rows), tb.asarray(weight)).numpy(), weight[rows])
    rows[699] = wrong
    with pytest.raises(tb.IndexingError, match=str(wrong)):
        look(tb.asarray(rows), tb.asarray(weight)).numpy()


POWERS: dict[str, Callable[[Any], Any]] = {
    "a number": lambda x: x**3, "a tensor": lambda x: x ** tb.full((), 3.0, dtype=x.dtype),
    "square": lambda x: x**2, "tenth": lambda x: x**10,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [tb.float32, tb.float64, tb.float16, tb.bfloat16], ids=str)
@pytest.mark.parametrize("power", POWERS)
def test_powers(power: str, dtype: tb.DType) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
    x = tb.asarray(np.r_[special, RNG.standard_normal(5000) * 2].astype("f4")).to(dtype)
    n = {"square": 2, "tenth": 10}.get(power, 3)
    wanted = x.to(tb.float64).numpy() ** n
    wide = "float64" if dtype is tb.float64 else "float32"
    for f in (POWERS[power], tb.compile(POWERS[power])):
        actual = f(x).to(tb.float64).numpy()
        limit = float(tb.finfo(dtype).max)
        retained = np.where(np.abs(wanted) > limit, np.copysign(np.inf, wanted), wanted)
        finite = np.where(np.isfinite(retained), retained, 0)
        least = float(tb.finfo(dtype).tiny)  # below which an element may be zero
        assert_within(actual, retained, gamma(n, wide) * abs(finite) + 2 * stored(finite, dtype) + least)
        np.testing.assert_array_equal(np.signbit(actual[:4]), np.signbit(wanted[:4]))


@pytest.mark.parametrize("dtype", [tb.float32, tb.float64], ids=str)
def test_sine_and_cosine_of_one_number(dtype: tb.DType) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e5]
    x = tb.asarray(np.r_[special, RNG.standard_normal(5000) * 40]).to(dtype)
    actual = tb.compile(lambda x: (tb.sin(x), tb.cos(x), tb.sin(x) * tb.cos(x)))(x)
    exact = x.to(tb.float64).numpy()
    with np.errstate(invalid="ignore"):
        sine, cosine = np.sin(exact), np.cos(exact)
    for got, wanted in zip(actual, (sine, cosine, sine * cosine), strict=True):
        assert_within(got.to(tb.float64).numpy(), wanted, gamma(2, dtype))


def test_the_first_in_order_come_from_the_kernel_that_leaves_the_rest() -> None:
    x = RNG.standard_normal((64, 700)).astype("f4")
    compiled = tb.compile(lambda x: tb.topk(x * 2, 5))
    values, places = compiled(tb.asarray(x))
    np.testing.assert_array_equal(places.numpy(), np.argsort(-x, axis=-1, kind="stable")[:, :5])
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x * 2, places.numpy(), axis=-1))


@pytest.mark.parametrize("wrong", [None, -1, 900])
@pytest.mark.parametrize("mode", ["add", "set", "max"])
def test_little_is_scattered_in_order(mode: str, wrong: int | None) -> None:
    rows, values = RNG.integers(0, 900, 60_000), RNG.integers(-50, 50, 60_000).astype("f4")
    x = np.zeros(900, "f4")
    wanted = x.copy()
    if mode == "set":
        wanted[rows] = values
    else:
        (np.add if mode == "add" else np.maximum).at(wanted, rows, values)
    if wrong is not None:
        rows[41_234] = wrong
    operand = tb.asarray(x)
    scattered = partial(scatter_op.function, mode=mode)
    for f in (scattered, tb.compile(scattered)):
        if wrong is not None:
            with pytest.raises(tb.IndexingError, match=str(wrong)):
                f(operand, tb.asarray(values), tb.asarray(rows)).numpy()
        else:
            np.testing.assert_array_equal(f(operand, tb.asarray(values), tb.asarray(rows)).numpy(), wanted)
        np.testing.assert_array_equal(operand.numpy(), x)


MOVED: dict[str, Callable[[Any, Any], Any]] = {
    "tiled": lambda xp, x: xp.tile(x, (2, 3)),
    "repeated": lambda xp, x: xp.repeat(x, 3, axis=1) * 2,
    "patches": lambda xp, x: turned(xp, x.reshape(4, 15, 7, 10), (0, 2, 1, 3)).reshape(28, 150) + 1,
    "heads": lambda xp, x: turned(xp, x.reshape(5, 12, 70), (0, 2, 1)).reshape(5, 840),
    "beside a packed one": lambda xp, x: turned(xp, x, (1, 0)).reshape(60, 70) * 2 + x,
    "beside another": lambda xp, x: (x + 1).reshape(70, 60) + turned(xp, x, (1, 0)),
    "beside a row": lambda xp, x: turned(xp, x, (1, 0)).reshape(60, 70) * x[:1],
    "twice": lambda xp, x: turned(xp, turned(xp, x, (1, 0)).reshape(60, 70) * 3, (1, 0)).reshape(35, 120),
    "of another reshape": lambda xp, x: turned(xp, x.reshape(6, 10, 70), (2, 0, 1)).reshape(70, 60) * 2 - 1,
    "flipped": lambda xp, x: xp.flip(turned(xp, x, (1, 0)), axis=1).reshape(60, 70) * 2,
    "padded": lambda xp, x: xp.concat([x, x * 2], axis=1).reshape(70, 120) - 1,
    "a choice": lambda xp, x: xp.where(turned(xp, x > 0, (1, 0)).reshape(60, 70), x, -x),
}  # fmt: skip


def turned(xp: Any, x: Any, axes: tuple[int, ...]) -> Any:
    return xp.permute_dims(x, axes)


@pytest.mark.parametrize("dtype", [tb.float32, tb.bfloat16, tb.int64], ids=str)
@pytest.mark.parametrize("moved", MOVED)
def test_reshapes_between_what_is_moved_and_what_is_computed(moved: str, dtype: tb.DType) -> None:
    x = RNG.integers(-9, 9, (60, 70)).astype("f8")
    actual = tb.asarray(x).to(dtype)
    wanted = MOVED[moved](np, x)
    for operand in (actual, tb.asarray(np.ascontiguousarray(x.T)).to(dtype).T):
        got = tb.compile(lambda x: MOVED[moved](tb, x))(operand)
        np.testing.assert_array_equal(got.to(tb.float64).numpy(), wanted)


@pytest.mark.parametrize("size", [(4, 4, 4), (3, 17, 5), (16, 16, 16), (2, 40, 2)])
def test_many_small_products_of_narrow_floats(size: tuple[int, int, int]) -> None:
    m, depth, n = size
    x, y = RNG.integers(-8, 8, (700, m, depth)), RNG.integers(-8, 8, (700, depth, n))
    result = tb.matmul(*(tb.asarray(a).to(tb.bfloat16) for a in (x, y)))
    np.testing.assert_array_equal(
        result.to(tb.float64).numpy(), tb.asarray(x @ y).to(tb.bfloat16).to(tb.float64).numpy()
    )
