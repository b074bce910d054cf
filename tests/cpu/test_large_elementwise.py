"""Elementwise ops above the size from which compiled code runs, against NumPy's below it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.eager.kernels_native import COMPUTE_BOUND_SIZE, MEMORY_BOUND_SIZE

from error_bounds import assert_within, gamma

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    np.inf,
    -np.inf,
    np.nan,
    2.5,
    -2.5,
    88.8,
    -104.0,
    1e-8,
    710.0,
    -750.0,
    1e30,
)
UNARY = (
    "negative abs sign sqrt floor ceil round trunc exp expm1 log log1p log2 log10 sin cos tan asin acos atan"
    " sinh cosh tanh asinh acosh atanh isnan isinf isfinite erf square".split()
)
BINARY = (
    "add subtract multiply divide floor_divide remainder maximum minimum power atan2 equal not_equal less"
    " less_equal greater greater_equal".split()
)
BITS = "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift".split()
WHOLE = "add subtract multiply floor_divide remainder maximum minimum power equal less".split()


def native(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name, name) if name == "bfloat16" else name)


def operands(dtype: str, size: int, seed: int) -> Any:
    """Random numbers of several magnitudes, and every special value."""
    rng = np.random.default_rng(seed)
    if dtype in FLOATS:
        x = rng.standard_normal(size) * rng.choice([0.01, 1.0, 30.0], size)
        x[: len(SPECIAL) ** 2] = (
            np.tile(SPECIAL, len(SPECIAL)) if seed % 2 else np.repeat(SPECIAL, len(SPECIAL))
        )
        with np.errstate(all="ignore"):
            return x.astype(native(dtype))
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, size, dtype, endpoint=True)
    ends = np.array([info.min, info.max, 0, 1, 2, 3, 7, 8], dtype)
    x[:64] = np.tile(ends, 8) if seed % 2 else np.repeat(ends, 8)
    return x


def in_pieces(function: Any, *arrays: Any) -> Any:
    """Run ``function`` on pieces so small that NumPy serves them."""
    step = 4096
    parts = [
        function(*[tb.asarray(a[k : k + step], device="cpu") for a in arrays]).numpy()
        for k in range(0, len(arrays[0]), step)
    ]
    return np.concatenate(parts)


def same(got: Any, wanted: Any, units: int, *, signs: bool = True) -> None:
    """Equal, NaN where NaN, zeros of one sign, and at most so many units in the last place apart."""
    assert got.dtype == wanted.dtype
    assert got.shape == wanted.shape
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, wanted)
        return
    wide = np.float32 if got.dtype.itemsize == 2 else got.dtype
    a, b = got.astype(wide), wanted.astype(wide)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    ends = np.isinf(b) | (b == 0)
    unit = {2: 2.0**-7 if got.dtype != np.float16 else 2.0**-10, 4: 2.0**-23, 8: 2.0**-52}[got.dtype.itemsize]
    room = units * unit * np.abs(np.where(np.isfinite(b), b, 0)) + units * float(
        np.finfo(native("float16") if got.dtype == np.float16 else wide).smallest_subnormal
    )
    fine = ~np.isnan(b) & ~np.isinf(b) & ~np.isinf(a)
    with np.errstate(all="ignore"):
        apart = np.abs(np.where(fine, a, 0) - np.where(fine, b, 0)) > np.where(fine, room, 0)
    assert not apart.any(), (a[apart][:5], b[apart][:5])
    if units == 0:
        np.testing.assert_array_equal(a[ends], b[ends])
    np.testing.assert_array_equal(np.isinf(a) & (np.abs(b) < np.finfo(wide).max / 2), False)
    zeros = (a == 0) & (b == 0) & signs
    np.testing.assert_array_equal(np.signbit(a[zeros]), np.signbit(b[zeros]))


EXACT = frozenset(
    "negative abs sign sqrt floor ceil round trunc isnan isinf isfinite square add subtract multiply divide"
    " maximum minimum equal not_equal less less_equal greater greater_equal remainder floor_divide".split()
)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    x = operands(dtype, MEMORY_BOUND_SIZE, 1)
    function = getattr(tb, name)
    signs = (name, dtype) != ("sign", "bfloat16")  # ml_dtypes keeps the sign of zero
    same(
        function(tb.asarray(x, device="cpu")).numpy(),
        in_pieces(function, x),
        0 if name in EXACT else 4,
        signs=signs,
    )


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: str) -> None:
    x, y = operands(dtype, MEMORY_BOUND_SIZE, 1), operands(dtype, MEMORY_BOUND_SIZE, 2)
    function = getattr(tb, name)
    got = function(tb.asarray(x, device="cpu"), tb.asarray(y, device="cpu")).numpy()
    signs = name not in ("maximum", "minimum")  # of zeros that are equal: either may be taken
    same(got, in_pieces(function, x, y), 0 if name in EXACT else 4, signs=signs)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", [*WHOLE, *BITS])
def test_integers(name: str, dtype: str) -> None:
    x, y = operands(dtype, MEMORY_BOUND_SIZE, 1), operands(dtype, MEMORY_BOUND_SIZE, 2)
    if name.endswith("shift"):
        y = (y % 8).astype(dtype)
    function = getattr(tb, name)
    got = function(tb.asarray(x, device="cpu"), tb.asarray(y, device="cpu")).numpy()
    same(got, in_pieces(function, x, y), 0)


@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("source", [*FLOATS, "int8", "int64", "uint32"])
def test_casts(source: str, target: str) -> None:
    x = operands(source, MEMORY_BOUND_SIZE, 1)

    def function(t: tb.Tensor) -> tb.Tensor:
        return t.to(getattr(tb, target))

    # ml_dtypes rounds to float32 on the way.
    units = int((source, target) == ("float64", "bfloat16"))
    same(function(tb.asarray(x, device="cpu")).numpy(), in_pieces(function, x), units)


def test_sizes_around_the_limits() -> None:
    for limit, name in ((MEMORY_BOUND_SIZE, "add"), (COMPUTE_BOUND_SIZE, "exp")):
        for size in (limit - 1, limit, limit + 1, 3 * limit + 5):
            x = np.linspace(-3, 3, size, dtype=np.float32)
            t = tb.asarray(x, device="cpu")
            got = tb.exp(t) if name == "exp" else tb.add(t, t)
            exact = np.exp(x.astype("f8")) if name == "exp" else x.astype("f8") * 2
            assert_within(got.numpy(), exact, gamma(1, "float32") * abs(exact) if name == "exp" else 0)


VIEWS = {
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "stepped": lambda a: a[::2, 1::3],
    "repeated row": lambda a: np.broadcast_to(a[0], a.shape),
    "repeated column": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "four axes": lambda a: a.reshape(8, -1, 4, a.shape[1] // 4).transpose(2, 0, 3, 1),
}


@pytest.mark.parametrize("other", VIEWS)
@pytest.mark.parametrize("view", VIEWS)
def test_strides(view: str, other: str) -> None:
    a = np.random.default_rng(0).standard_normal((1200, 1200)).astype(np.float32)
    x, y = VIEWS[view](a), VIEWS[other](a + 1)
    if x.shape != y.shape:
        y = np.ascontiguousarray(x)[..., ::-1]
    got = tb.asarray(x, device="cpu", copy=False) * 2 - tb.asarray(y, device="cpu", copy=False)
    np.testing.assert_array_equal(got.numpy(), x * 2 - y)


def test_broadcasts_and_numbers() -> None:
    a = np.random.default_rng(0).standard_normal((700, 300)).astype(np.float32)
    x = tb.asarray(a, device="cpu")
    row, column, one = (tb.asarray(v, device="cpu") for v in (a[0], a[:, :1], a[0, 0]))
    for got, wanted in (
        (x + row, a + a[0]), (column * x, a[:, :1] * a), (x - one, a - a[0, 0]), (one - x, a[0, 0] - a),
        (2.0 - x, 2 - a), (x * 3, a * 3), (x > 0.0, a > 0),
        (tb.where(x > 0.0, x, 0.5), np.where(a > 0, a, np.float32(0.5))),
        (x + True, a + 1), (tb.maximum(x, float("nan")), np.maximum(a, np.float32(np.nan))),
    ):  # fmt: skip
        assert got.dtype.name == str(wanted.dtype)
        np.testing.assert_array_equal(got.numpy(), wanted)


def test_arrays_off_the_grid_of_their_elements() -> None:
    raw = np.zeros(4 * MEMORY_BOUND_SIZE + 1, np.uint8)
    a = raw[1:].view(np.float32)
    a[:] = np.arange(MEMORY_BOUND_SIZE)
    x = tb.asarray(a, device="cpu", copy=False)
    np.testing.assert_array_equal((x + x).numpy(), a + a)
    record = np.zeros(MEMORY_BOUND_SIZE, [("a", "f4"), ("b", "u1")])
    y = tb.asarray(record["a"], device="cpu", copy=False)
    np.testing.assert_array_equal((y + 1).numpy(), np.ones(MEMORY_BOUND_SIZE, "f4"))
    np.testing.assert_array_equal(tb.sum(y).numpy(), 0)


def test_operands_are_not_changed() -> None:
    a = np.random.default_rng(0).standard_normal(MEMORY_BOUND_SIZE).astype(np.float32)
    x = tb.asarray(a, device="cpu")
    for function in (tb.exp, lambda t: t + t, tb.sum, tb.cumulative_sum, tb.sort, tb.argsort):
        function(x)
        np.testing.assert_array_equal(x.numpy(), a)
