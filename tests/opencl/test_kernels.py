"""Movement, reductions, products, indexing and creation beside NumPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from tensorbus.backend_interface.protocols import Call
from tensorbus.dtypes import definition as dt
from tensorbus.errors import IndexingError, OutOfMemoryError, UnsupportedDtypeError
from tensorbus_opencl.dialect import dialect

from error_bounds import assert_within, gamma, of_product, of_sum, stored
from opencl_bench import Bench, numpy_dtype

RNG = np.random.default_rng(0)
REDUCTIONS: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all,
    "argmax": np.argmax, "argmin": np.argmin,
}  # fmt: skip
CASES = [
    ((), ()), ((5,), (0,)), ((1,), (0,)), ((3, 4), (0,)), ((3, 4), (1,)), ((3, 4), (0, 1)), ((3, 4), ()),
    ((2, 3, 4, 5), (0, 2)), ((2, 3, 4, 5), (1, 3)), ((2, 3, 4, 5), (1, 2)), ((3, 4), ()), ((1000, 3), (0,)),
    ((3, 1000), (1,)), ((20000,), (0,)), ((5000, 7), (0,)), ((7, 5000), (1,)), ((70, 3, 41), (0, 2)),
    ((2, 0), (0,)), ((300, 33), (1,)), ((33, 300), (0,)), ((1, 50, 1), (1,)), ((4, 5000, 3), (1,)),
    ((2, 3, 40, 3, 5), (0, 2, 4)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def holds(actual: Any, a: Any, b: Any) -> None:
    """Hold a product of matrices of float32 against that in float64."""
    assert_within(actual, a.astype("f8") @ b.astype("f8"), of_product(a, b, "float32"))


def some(shape: tuple[int, ...], name: str) -> Any:
    d = dt.dtype(name)
    if name == "bool":
        return RNG.random(shape) > 0.5
    if d.is_floating:
        return RNG.normal(size=shape).astype(numpy_dtype(d))
    return RNG.integers(0 if d.kind == "uint" else -50, 50, shape, name)


@pytest.mark.parametrize("name", ["float32", "int64", "bfloat16", "float16", "uint8", "float64", "int32"])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_reductions(bench: Bench, shape: tuple[int, ...], axis: tuple[int, ...], name: str) -> None:
    x = some(shape, name)
    value = bench.put(x, dt.dtype(name))
    wide = x.astype("f8") if dt.dtype(name).is_floating else x
    count = int(np.prod([shape[k] for k in axis]))
    for keepdims in (False, True):
        got = bench.run("sum", value, axis=axis, keepdims=keepdims)
        wanted = np.sum(wide, axis=axis, keepdims=keepdims, dtype=wide.dtype)
        if dt.dtype(name).is_floating:
            inner = "float64" if name == "float64" else "float32"
            bound = of_sum(wide, axis, inner, keepdims=keepdims) + stored(wanted, name)
            assert_within(got.astype("f8"), wanted, 2 * bound)
        else:
            np.testing.assert_array_equal(got, wanted.astype(got.dtype))
        if count:
            for op in ("max", "min"):
                got = bench.run(op, value, axis=axis, keepdims=keepdims)
                np.testing.assert_array_equal(
                    got.astype(wide.dtype), REDUCTIONS[op](wide, axis=axis, keepdims=keepdims)
                )
    if name in ("int64", "uint8", "int32"):
        np.testing.assert_array_equal(
            bench.run("prod", value, axis=axis, keepdims=False), np.prod(x, axis=axis, dtype=name)
        )
    if len(axis) == 1 and count:
        for op in ("argmax", "argmin"):
            got = bench.run(op, value, axis=axis[0], keepdims=False)
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, REDUCTIONS[op](wide, axis=axis[0]))


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_any_all(bench: Bench, shape: tuple[int, ...], axis: tuple[int, ...]) -> None:
    for x in (RNG.random(shape) > 0.9, np.ones(shape, bool), np.zeros(shape, bool)):
        for op in ("any", "all"):
            np.testing.assert_array_equal(
                bench.run(op, x, axis=axis, keepdims=False), REDUCTIONS[op](x, axis=axis)
            )


@pytest.mark.parametrize("shape", [(40,), (5000,), (40, 40), (3, 700)])
def test_nan_is_an_extreme(bench: Bench, shape: tuple[int, ...]) -> None:
    x = RNG.normal(size=shape).astype("f4")
    x[..., 31] = np.nan
    x[..., 35] = np.nan
    x[..., 3] = np.inf
    axis = len(shape) - 1
    for op in ("max", "min", "argmax", "argmin"):
        operand = axis if op.startswith("arg") else (axis,)
        np.testing.assert_array_equal(
            bench.run(op, x, axis=operand, keepdims=False), REDUCTIONS[op](x, axis=axis)
        )


def test_first_of_equals_wins(bench: Bench) -> None:
    for n in (10, 100, 10000, 300000):
        x = np.zeros(n, "f4")
        x[n // 2 :] = 1
        assert bench.run("argmax", x, axis=0, keepdims=False) == n // 2
        assert bench.run("argmin", x, axis=0, keepdims=False) == 0


def test_long_float_sums_are_exact(bench: Bench) -> None:
    ones = bench.get(
        bench.prepare("sum", (v := bench.put(np.ones(1 << 24, "f4")),), axis=(0,), keepdims=False)(v)
    )
    assert ones == 1 << 24
    tall = bench.put(np.ones((1 << 22, 3), "f4"))
    assert (bench.run("sum", tall, axis=(0,), keepdims=False) == 1 << 22).all()
    half = bench.run("sum", np.ones(60000, "f2"), axis=(0,), keepdims=False)
    assert half == 60000


def test_reduction_of_views(bench: Bench) -> None:
    x = RNG.normal(size=(60, 50, 4)).astype("f4")
    v = bench.put(x)
    turned = bench.prepare("permute_dims", (v,), axes=(2, 0, 1))(v)
    wide = bench.prepare("broadcast_to", (turned,), shape=(3, 4, 60, 50))(turned)
    part = bench.prepare("slice", (v,), start=(59, 1, 0), size=(30, 20, 4), step=(-2, 2, 1))(v)
    y = x.transpose(2, 0, 1)
    for axis in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)):
        got = bench.run("sum", turned, axis=axis, keepdims=False)
        assert_within(got, y.astype("f8").sum(axis=axis), of_sum(y, axis, "float32"))
        got = bench.run("max", part, axis=axis, keepdims=False)
        np.testing.assert_array_equal(got, x[59::-2, 1:41:2].max(axis=axis))
    got = bench.run("sum", wide, axis=(0, 2), keepdims=False)
    many = np.broadcast_to(y, (3, 4, 60, 50)).astype("f8")
    assert_within(got, many.sum(axis=(0, 2)), of_sum(many, (0, 2), "float32"))
    np.testing.assert_array_equal(bench.run("argmax", turned, axis=1, keepdims=False), y.argmax(1))


@pytest.mark.parametrize("name", ["float32", "int64", "float64", "int32"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((7,), 0), ((1,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 3, 4), 1), ((20000,), 0),
                        ((3, 9000), 1), ((9000, 3), 0), ((0, 3), 1), ((3, 0), 1), ((5000, 40), 0),
                        ((2, 5000, 20), 1)],
)  # fmt: skip
def test_cumulative_sum(bench: Bench, shape: tuple[int, ...], axis: int, name: str) -> None:
    x = some(shape, name)
    got = bench.run("cumulative_sum", x, axis=axis)
    if x.dtype.kind == "i":
        np.testing.assert_array_equal(got, np.cumsum(x, axis=axis, dtype=got.dtype))
        return
    size = np.cumsum(np.abs(x.astype("f8")), axis=axis)
    assert_within(got, np.cumsum(x.astype("f8"), axis=axis), 2 * gamma(x.shape[axis], name) * size)


PRODUCTS = [
    ((1, 1), (1, 1)), ((2, 3), (3, 4)), ((7, 5), (5, 33)), ((8, 16), (16, 32)), ((9, 17), (17, 31)),
    ((1, 784), (784, 10)),
    ((64, 100), (100, 64)), ((130, 70), (70, 130)), ((3, 0), (0, 4)), ((0, 3), (3, 4)), ((2, 3, 4), (4, 5)),
    ((4, 5), (3, 5, 6)), ((2, 1, 3, 4), (1, 5, 4, 2)), ((0, 2, 3), (3, 2)), ((5, 3000), (3000, 6)),
    ((200, 33), (33, 64)),
    ((3, 4, 2000), (3, 2000, 5)), ((256, 2), (2, 256)), ((4, 8), (8, 1)),
]  # fmt: skip


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int32", "uint8", "int64"])
@pytest.mark.parametrize(("a", "b"), PRODUCTS)
def test_matmul(bench: Bench, a: tuple[int, ...], b: tuple[int, ...], name: str) -> None:
    d = dt.dtype(name)
    x, y = some(a, name), some(b, name)
    got = bench.run("matmul", bench.put(x, d), bench.put(y, d))
    if d.is_integer:
        np.testing.assert_array_equal(got, np.matmul(x, y))
        return
    wanted = np.matmul(x.astype("f8"), y.astype("f8"))
    bound = of_product(x, y, "float64" if name == "float64" else "float32") + stored(wanted, name)
    assert_within(got.astype("f8"), wanted, 2 * bound)


def test_matmul_of_views(bench: Bench) -> None:
    x, y = some((40, 50), "float32"), some((60, 50), "float32")
    v, w = bench.put(x), bench.put(y)
    turned = bench.prepare("permute_dims", (w,), axes=(1, 0))(w)
    holds(bench.run("matmul", v, turned), x, y.T)
    back = bench.prepare("flip", (v,), axis=(1,))(v)
    holds(bench.run("matmul", back, turned), x[:, ::-1], y.T)
    left = bench.prepare("permute_dims", (v,), axes=(1, 0))(v)
    holds(bench.run("matmul", left, v), x.T, x)
    part = bench.prepare("slice", (w,), start=(3, 2), size=(50, 48), step=(1, 1))(w)
    holds(bench.run("matmul", v, part), x, y[3:53, 2:])
    many = bench.prepare("broadcast_to", (w,), shape=(3, 60, 50))(w)
    z = some((3, 50, 8), "float32")
    holds(bench.run("matmul", many, z), y, z)


@pytest.mark.parametrize("name", ["float32", "bool", "int8", "bfloat16"])
def test_movement(bench: Bench, name: str) -> None:
    d = dt.dtype(name)
    x = some((3, 4, 5), name)
    v = bench.put(x, d)
    turned = bench.prepare("permute_dims", (v,), axes=(2, 0, 1))(v)
    y = x.transpose(2, 0, 1)
    for shape in ((60,), (5, 12), (15, 4), (5, 3, 2, 2), (1, 5, 1, 12), (2, 30)):
        np.testing.assert_array_equal(bench.run("reshape", turned, shape=shape), y.reshape(shape))
    low, high = (1, 0, 2), (0, 3, 1)
    got = bench.run("pad", turned, low=low, high=high, value=1)
    np.testing.assert_array_equal(got, np.pad(y, list(zip(low, high, strict=True)), constant_values=1))
    other = some((5, 2, 4), name)
    got = bench.run("concat", turned, bench.put(other, d), turned, axis=1)
    np.testing.assert_array_equal(got, np.concatenate([y, other, y], 1))
    box = some((2, 2, 4), name)
    for start, step in (((0, 1, 0), (1, 1, 1)), ((4, 0, 3), (-2, 2, -1)), ((1, 0, 0), (3, 2, 1))):
        wanted = y.copy()
        index = tuple(np.arange(n) * t + b for n, t, b in zip(box.shape, step, start, strict=True))
        wanted[np.ix_(*index)] = box
        got = bench.run("slice_update", turned, bench.put(box, d), start=start, step=step)
        np.testing.assert_array_equal(got, wanted)
    empty = bench.put(np.zeros((5, 0, 4), x.dtype), d)
    np.testing.assert_array_equal(bench.run("concat", empty, turned, axis=1), y)
    np.testing.assert_array_equal(
        bench.run("slice_update", turned, empty, start=(0, 0, 0), step=(1, 1, 1)), y
    )
    assert bench.run("concat", empty, empty, axis=1).shape == (5, 0, 4)
    assert bench.run("pad", empty, low=(0, 2, 0), high=(0, 0, 0), value=1).all()


def test_movement_of_large_blocks(bench: Bench) -> None:
    x = some((4, 3, 32, 33), "float32")
    got = bench.run("pad", x, low=(0, 0, 1, 1), high=(0, 0, 1, 1), value=0)
    np.testing.assert_array_equal(got, np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]))
    np.testing.assert_array_equal(bench.run("concat", x, x, axis=1), np.concatenate([x, x], 1))
    np.testing.assert_array_equal(bench.run("concat", x, x, axis=0), np.concatenate([x, x], 0))
    np.testing.assert_array_equal(bench.run("concat", x, x, axis=3), np.concatenate([x, x], 3))


def test_windows(bench: Bench) -> None:
    x = some((2, 3, 9, 8), "float32")
    v = bench.put(x)
    got = bench.run("windows", v, size=(3, 2), stride=(2, 1), dilation=(1, 2))
    wanted = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, :, :, ::2]
    np.testing.assert_array_equal(got, wanted)
    value = bench.prepare("windows", (v,), size=(3, 2), stride=(2, 1), dilation=(1, 2))(v)
    actual = bench.run("sum", value, axis=(4, 5), keepdims=False)
    assert_within(actual, wanted.astype("f8").sum((4, 5)), of_sum(wanted, (4, 5), "float32"))
    np.testing.assert_array_equal(bench.run("max", value, axis=(4, 5), keepdims=False), wanted.max((4, 5)))


@pytest.mark.parametrize("name", ["float32", "bool", "int16", "bfloat16"])
def test_gather_and_scatter(bench: Bench, name: str) -> None:
    d = dt.dtype(name)
    x = some((6, 5, 3), name)
    v = bench.put(x, d)
    i, j = RNG.integers(0, 6, (4, 7)), RNG.integers(0, 5, (4, 7))
    np.testing.assert_array_equal(bench.run("gather", v, bench.put(i)), x[i])
    np.testing.assert_array_equal(bench.run("gather", v, bench.put(i), bench.put(j)), x[i, j])
    for actual, index in (((i,), (i,)), ((i, j), (i, j))):
        box = some(x[index].shape, name)
        indices = [bench.put(k) for k in actual]
        wanted = x.copy()
        for place in np.ndindex(4, 7):
            wanted[tuple(k[place] for k in index)] = box[place]
        np.testing.assert_array_equal(
            bench.run("scatter", v, bench.put(box, d), *indices, mode="set"), wanted
        )
        if name != "bool":
            wanted = x.astype("f8") if d.is_floating else x.copy()
            np.add.at(wanted, index, box.astype(wanted.dtype))
            got = bench.run("scatter", v, bench.put(box, d), *indices, mode="add")
            if not d.is_floating:
                np.testing.assert_array_equal(got, wanted)
                continue
            terms, times = np.abs(x.astype("f8")), np.zeros(x.shape)
            np.add.at(terms, index, np.abs(box.astype("f8")))
            np.add.at(times, index, 1)
            assert_within(got, wanted, gamma(int(times.max()), name) * terms * (times > 0))
    one = bench.put(np.array(2))
    np.testing.assert_array_equal(bench.run("gather", v, one), x[2])
    none = bench.put(np.zeros((0,), "i8"))
    assert bench.run("gather", v, none).shape == (0, 5, 3)
    np.testing.assert_array_equal(
        bench.run("scatter", v, bench.put(np.zeros((0, 5, 3), x.dtype), d), none, mode="set"), x
    )
    flat = some((1000,), name)
    k = RNG.integers(0, 1000, 5000)
    values = some((5000,), name)
    wanted = flat.copy()
    for at, value in zip(k, values, strict=True):
        wanted[at] = value
    np.testing.assert_array_equal(
        bench.run("scatter", bench.put(flat, d), bench.put(values, d), bench.put(k), mode="set"), wanted
    )


@pytest.mark.parametrize("bad", [-1, 6, 1 << 40, -(1 << 62)])
def test_a_bad_index_raises_when_waiting(bench: Bench, bad: int) -> None:
    v = bench.put(some((6, 3), "float32"))
    index = bench.put(np.array([0, bad, 2]))
    run = bench.prepare("gather", (v, index))
    run(v, index)
    with pytest.raises(IndexingError, match=rf"gather.*index {bad} .*length 6"):
        bench.runtime.synchronize(0)
    bench.runtime.synchronize(0)
    box = bench.put(some((3, 3), "float32"))
    scattered = bench.prepare("scatter", (v, box, index), mode="set")(v, box, index)
    with pytest.raises(IndexingError, match=rf"scatter.*index {bad} "):
        bench.get(scattered)
    np.testing.assert_array_equal(bench.run("gather", v, bench.put(np.array([5]))), bench.get(v)[5:])


def test_creation(bench: Bench) -> None:
    for name in ("float32", "bool", "int64", "uint64", "bfloat16", "float16"):
        d = dt.dtype(name)
        got = _create(bench, "full", d, (3, 4), shape=(3, 4), value=1)
        np.testing.assert_array_equal(got, np.full((3, 4), 1, numpy_dtype(d)))
        if name != "bool":
            got = _create(bench, "iota", d, (50,), length=50, start=3, step=2)
            np.testing.assert_array_equal(got, (3 + 2 * np.arange(50)).astype(numpy_dtype(d)))
    assert _create(bench, "full", dt.float32, (), shape=(), value=2.5) == 2.5
    assert _create(bench, "full", dt.uint64, (1,), shape=(1,), value=(1 << 64) - 1) == (1 << 64) - 1
    assert _create(bench, "iota", dt.int64, (0,), length=0, start=0, step=1).shape == (0,)
    got = _create(bench, "iota", dt.float64, (5,), length=5, start=0.5, step=-0.25)
    np.testing.assert_array_equal(got, 0.5 - 0.25 * np.arange(5))


def _create(bench: Bench, op: str, d: dt.DType, out: tuple[int, ...], /, **attrs: Any) -> Any:
    call = Call(op=op, dtypes=(), shapes=(), attrs={**attrs, "dtype": d}, out_dtype=d, out_shape=out, index=0)
    return bench.get(bench.kernels[op].prepare(call)())


def test_composites_are_single_kernels(bench: Bench) -> None:
    x = RNG.normal(size=(33, 20)).astype("f4")
    wide, rounded = x.astype("f8"), gamma(8, "float32")
    share = 1 / (1 + np.exp(-wide))
    assert_within(bench.run("sigmoid", x), share, rounded * share)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    shares = powers / powers.sum(1, keepdims=True)
    assert_within(bench.run("softmax", x, axis=1), shares, gamma(20 + 8, "float32") * shares)
    mean = bench.run("mean", x, axis=(0,), keepdims=True)
    assert_within(mean, wide.mean(0, keepdims=True), of_sum(x, 0, "float32", keepdims=True) / 33)
    cubic = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
    assert_within(bench.run("gelu_tanh", x), cubic, rounded * abs(wide))


def test_missing_dtypes_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = bench.runtime.units[bench.index]
    monkeypatch.setattr(unit, "dialect", dialect(half=True, double=False, target=unit.dialect.target))
    for d in (dt.float64, dt.complex128):
        with pytest.raises(UnsupportedDtypeError, match=rf"opencl.* has no {d}"):
            bench.runtime.from_host(memoryview(bytes(d.itemsize)), (1,), d, 0)
        call = Call(op="add", dtypes=(d, d), shapes=None, attrs={}, out_dtype=d, out_shape=None, index=0)
        with pytest.raises(UnsupportedDtypeError, match=rf"add: .* has no {d}"):
            bench.kernels["add"].prepare(call)


def test_running_out_of_memory_leaves_everything_valid(bench: Bench) -> None:
    x = np.arange(10, dtype="f4")
    v = bench.put(x)
    before = bench.runtime.memory_stats(0).allocated
    with pytest.raises(OutOfMemoryError, match="no room for"):
        _create(bench, "full", dt.float32, (1 << 45,), shape=(1 << 45,), value=1.0)
    assert bench.runtime.memory_stats(0).allocated == before
    np.testing.assert_array_equal(bench.run("add", v, v), x + x)
