"""Every elementwise kernel beside NumPy: dtypes, broadcasting, strides, scalars, special values."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tensorbus.dtypes import definition as dt

from error_bounds import assert_within, gamma, stored
from opencl_bench import Bench, numpy_dtype

FLOATS = ("float16", "bfloat16", "float32", "float64")
NARROW = FLOATS[:2]
INTEGERS = tuple(d.name for d in dt.INTEGER)
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, 3.5, -2.5, 1e-3, -7.25, 100.0, np.inf, -np.inf, np.nan]

UNARY: dict[str, Any] = {
    "negative": np.negative, "abs": np.abs, "sign": np.sign, "sqrt": np.sqrt, "exp": np.exp,
    "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "log2": np.log2, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor,
    "ceil": np.ceil, "round": np.round, "trunc": np.trunc, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite,
    "rsqrt": lambda x: 1 / np.sqrt(x), "square": lambda x: x * x, "reciprocal": lambda x: 1 / x,
}  # fmt: skip
BINARY: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "atan2": np.arctan2,
    "maximum": np.maximum, "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal, "greater": np.greater, "greater_equal": np.greater_equal,
    "remainder": np.remainder, "power": np.power,
}  # fmt: skip


def values(name: str) -> Any:
    d = dt.dtype(name)
    kind = numpy_dtype(d)
    if d.is_floating:
        return np.array([*SPECIAL, *np.random.default_rng(0).normal(size=50) * 3]).astype(kind)
    low, high = dt.integer_range(d)
    rng = np.random.default_rng(0)
    some = [0, 1, 2, 3, 7, 100, low, high, low + 1, high - 1]
    return np.concatenate([np.array(some, kind), rng.integers(low, high, 40, kind, endpoint=True)])


def close(got: Any, wanted: Any, name: str) -> None:
    assert got.shape == wanted.shape
    if got.dtype == bool or name not in FLOATS:
        np.testing.assert_array_equal(got, wanted)
        return
    exact = wanted.astype(got.dtype).astype("f8")
    size = np.abs(np.where(np.isfinite(exact), exact, 0))
    # OpenCL allows powers 16 units of the last place; narrow dtypes are computed in float32, and stored.
    wide = "float64" if name == "float64" else "float32"
    assert_within(got, exact, gamma(8, wide) * size + (2 * stored(size, name) if name in NARROW else 0))


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("op", UNARY)
def test_unary_float(bench: Bench, op: str, name: str) -> None:
    x = values(name)
    wide = x.astype("f8") if name != "float64" else x
    if name == "float16" and op in ("exp", "sinh", "cosh", "expm1"):
        x, wide = x[np.abs(wide) < 11], wide[np.abs(wide) < 11]
    got = bench.run(op, bench.put(x, dt.dtype(name)))
    close(got, UNARY[op](wide), name)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("op", ["negative", "abs", "sign", "floor", "ceil", "round", "trunc", "square"])
def test_unary_integer(bench: Bench, op: str, name: str) -> None:
    x = values(name)
    np.testing.assert_array_equal(bench.run(op, x), UNARY[op](x).astype(name))


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("op", BINARY)
def test_binary_float(bench: Bench, op: str, name: str) -> None:
    x = values(name)
    y = np.roll(x, 7)
    x, y = np.concatenate([x, np.repeat(x[:15], 15)]), np.concatenate([y, np.tile(x[:15], 15)])
    wide = "f4" if name in ("float16", "bfloat16") else name
    got = bench.run(op, bench.put(x, dt.dtype(name)), bench.put(y, dt.dtype(name)))
    wanted = BINARY[op](x.astype(wide), y.astype(wide))
    if op == "power":
        fits = np.abs(wanted.astype("f8")) < (6e4 if name == "float16" else 1e30)
        got, wanted = got[fits], wanted[fits]
    close(got, wanted, name)


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("op", sorted(set(BINARY) - {"divide", "atan2", "power", "remainder"}))
def test_binary_integer(bench: Bench, op: str, name: str) -> None:
    x = values(name)
    y = np.roll(x, 3)
    np.testing.assert_array_equal(bench.run(op, x, y), BINARY[op](x, y))


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_division_is_defined_everywhere(bench: Bench, name: str) -> None:
    x = values(name)
    x, y = (a.ravel() for a in np.meshgrid(x, x))
    kind = x.dtype
    exact = [(int(a) // int(b), int(a) % int(b)) if b else (0, 0) for a, b in zip(x, y, strict=True)]
    quotients = np.array([dt_wrap(q, kind) for q, _ in exact], kind)
    np.testing.assert_array_equal(bench.run("floor_divide", x, y), quotients)
    np.testing.assert_array_equal(bench.run("remainder", x, y), np.array([r for _, r in exact], kind))


def dt_wrap(value: int, kind: Any) -> int:
    bits = 8 * kind.itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind.kind == "i" and value >> (bits - 1) else value


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_power_and_shifts(bench: Bench, name: str) -> None:
    x = values(name)
    y = np.array([0, 1, 2, 3, 7, 8, 15, 31, 63, 64, 100], x.dtype)
    if x.dtype.kind == "i":
        y = np.concatenate([y, np.array([-1, -2, -64], x.dtype)])
    x, y = (a.ravel() for a in np.meshgrid(x, y))
    bits = 8 * x.dtype.itemsize
    powers, lefts, rights = [], [], []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        powers.append(
            dt_wrap(pow(a, b, 1 << 70) if b >= 0 else (1 if a == 1 else (-1) ** b if a == -1 else 0), x.dtype)
        )
        far = b < 0 or b >= bits
        lefts.append(0 if far else dt_wrap(a << b, x.dtype))
        rights.append((-1 if a < 0 else 0) if far else a >> b)
    np.testing.assert_array_equal(bench.run("power", x, y), np.array(powers, x.dtype))
    np.testing.assert_array_equal(bench.run("bitwise_left_shift", x, y), np.array(lefts, x.dtype))
    np.testing.assert_array_equal(bench.run("bitwise_right_shift", x, y), np.array(rights, x.dtype))


@pytest.mark.parametrize("name", ["bool", *INTEGERS])
@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"])
def test_bitwise(bench: Bench, op: str, name: str) -> None:
    x = np.array([True, False, True, False]) if name == "bool" else values(name)
    y = np.roll(x, 1)
    operand = (x,) if op == "bitwise_invert" else (x, y)
    np.testing.assert_array_equal(bench.run(op, *operand), getattr(np, op)(*operand))


@pytest.mark.parametrize(
    "op", ["logical_and", "logical_or", "logical_xor", "logical_not", "equal", "less", "greater"]
)
def test_bool(bench: Bench, op: str) -> None:
    x, y = np.array([True, True, False, False]), np.array([True, False, True, False])
    operand = (x,) if op == "logical_not" else (x, y)
    np.testing.assert_array_equal(bench.run(op, *operand), getattr(np, op)(*operand))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_floor_divide_follows_the_standard(bench: Bench, name: str) -> None:
    x = values(name)[:15]
    x, y = (a.ravel() for a in np.meshgrid(x, x))
    wanted = np.floor_divide(x, y)
    infinite = np.isinf(x) | np.isinf(y)
    wanted[infinite] = (x / y)[infinite]
    np.testing.assert_array_equal(bench.run("floor_divide", x, y), wanted)
    got = bench.run("remainder", x, y)
    np.testing.assert_array_equal(got, np.remainder(x, y))


def test_erf(bench: Bench) -> None:
    from math import erf

    x = np.linspace(-4, 4, 101)
    for name in ("float32", "float64"):
        exact = np.array([erf(v) for v in x.astype(name)])
        assert_within(bench.run("erf", x.astype(name)), exact, gamma(4, name) * abs(exact))


@pytest.mark.parametrize("target", ["bool", *INTEGERS, *FLOATS])
@pytest.mark.parametrize("source", ["bool", *INTEGERS, *FLOATS])
def test_cast(bench: Bench, source: str, target: str) -> None:
    x = np.array([True, False]) if source == "bool" else values(source)
    if source in FLOATS:
        x = np.concatenate([x, np.array([1e5, -1e5, 3e9, -3e9, 1e19, -1e19, 300.7, -300.7]).astype(x.dtype)])
    s, t = dt.dtype(source), dt.dtype(target)
    got = bench.run("cast", bench.put(x, s), dtype=t)
    if s.is_floating and t.is_integer:
        low, high = dt.integer_range(t)
        wanted = np.array([0 if np.isnan(v) else min(max(int(v), low), high) if np.isfinite(v) else
                           (low if v < 0 else high) for v in x.astype("f8")], numpy_dtype(t))  # fmt: skip
    elif t is dt.bool_:
        wanted = x != 0
    elif t.is_floating and s.is_integer and t.itemsize == 2:
        wanted = x.astype("f4").astype(numpy_dtype(t))
    else:
        wanted = x.astype(numpy_dtype(t))
    np.testing.assert_array_equal(
        got.astype("f8") if t.is_floating else got, wanted.astype("f8") if t.is_floating else wanted
    )


def test_cast_from_double_rounds_once(bench: Bench) -> None:
    half = 1 + 2.0**-11
    x = np.array(
        [half, half + 2.0**-40, half - 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-45, 1e-8, 65519.99]
    )
    np.testing.assert_array_equal(bench.run("cast", x, dtype=dt.float16), x.astype("f2"))
    got = bench.run("cast", x, dtype=dt.bfloat16)[3:5].astype("f4")
    np.testing.assert_array_equal(got, np.array([1, 1 + 2.0**-7], "f4"))


SHAPES = [
    ((), ()), ((1,), ()), ((5,), (5,)), ((0,), (1,)), ((3, 0, 2), (1, 2)), ((4, 1, 3), (2, 1)),
    ((2, 3, 4, 5), (4, 1)), ((2, 1, 4, 1, 3), (1, 3, 1, 2, 1)), ((1000, 3), (3,)), ((7, 1025), (7, 1)),
    ((1, 1), (1,)), ((65, 33), (65, 33)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_broadcasting(bench: Bench, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=a).astype("f4"), rng.normal(size=b).astype("f4")
    np.testing.assert_array_equal(bench.run("add", x, y), x + y)
    np.testing.assert_array_equal(bench.run("subtract", y, x), y - x)
    np.testing.assert_array_equal(bench.run("where", x > 0, y, x), np.where(x > 0, y, x))


def test_scalars_are_arguments(bench: Bench) -> None:
    x = np.arange(6, dtype="f4")
    run = bench.prepare("subtract", (bench.put(x), 1.5))
    built = bench.runtime.compiler.built
    for value in (1.5, 0.0, -2.0, float("inf"), 3):
        np.testing.assert_array_equal(bench.get(run(bench.put(x), value)), x - np.float32(value))
        np.testing.assert_array_equal(bench.get(run(value, bench.put(x))), np.float32(value) - x)
    assert bench.runtime.compiler.built <= built + 2
    i = np.array([1, 200], "u1")
    np.testing.assert_array_equal(bench.run("add", bench.put(i), 100), i + np.uint8(100))
    h = np.array([1, 2], ml_dtypes.bfloat16)
    got = bench.run("multiply", bench.put(h, dt.bfloat16), 1.00390625 + 2**-12)
    np.testing.assert_array_equal(got, h * ml_dtypes.bfloat16(1.00390625 + 2**-12))
    np.testing.assert_array_equal(bench.run("logical_and", np.array([True, False]), True), [True, False])


def test_strided_operands(bench: Bench) -> None:
    x = np.arange(2 * 6 * 8, dtype="i4").reshape(2, 6, 8)
    v = bench.put(x)
    turned = bench.prepare("permute_dims", (v,), axes=(2, 0, 1))(v)
    part = bench.prepare("slice", (turned,), start=(7, 0, 1), size=(4, 2, 2), step=(-2, 1, 3))(turned)
    back = bench.prepare("flip", (part,), axis=(1,))(part)
    wanted = np.flip(x.transpose(2, 0, 1)[7::-2, :, 1:5:3], 1)
    np.testing.assert_array_equal(bench.get(back), wanted)
    np.testing.assert_array_equal(bench.get(bench.prepare("add", (back, back))(back, back)), wanted * 2)
    wide = bench.prepare("broadcast_to", (back,), shape=(3, 4, 2, 2))(back)
    other = np.arange(4, dtype="i4").reshape(2, 2)
    np.testing.assert_array_equal(
        bench.run("multiply", wide, other), np.broadcast_to(wanted, (3, 4, 2, 2)) * other
    )


def test_sizes_share_one_program(bench: Bench) -> None:
    bench.run("multiply", np.ones(7, "i2"), np.ones(7, "i2"))
    built = bench.runtime.compiler.built
    for shape in ((5,), (3, 4), (2, 3, 4), (1000,), (17, 1, 9)):
        x = np.random.default_rng(0).integers(-99, 99, shape, "i2")
        np.testing.assert_array_equal(bench.run("multiply", x, x), x * x)
    assert bench.runtime.compiler.built == built
