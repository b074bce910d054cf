"""Sort, argsort and scatter at sizes that take every schedule: by rank, by rows, in chunks, by bucket."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb

pytestmark = pytest.mark.full

KINDS = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
SHAPES = [
    ((0,), 0), ((1,), 0), ((48,), 0), ((49,), 0), ((9000,), 0), ((40000,), 0), ((3, 5, 60), 2),
    ((3, 60, 5), 1), ((60, 2, 3), 0), ((4, 30, 3), 1), ((300, 70), 1),
]  # fmt: skip
RNG = np.random.default_rng(0)


def sample(shape: tuple[int, ...], kind: str) -> Any:
    if kind == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if not kind.startswith("float"):
        info = np.iinfo(kind)
        some = RNG.integers(max(info.min, -20), 20, shape).astype(kind)
        ends = RNG.choice(np.array([info.min, info.max], kind), shape)
        return np.where(RNG.random(shape) < 0.1, ends, some)
    x = (RNG.integers(-20, 20, shape) / 4).astype(kind)
    for k, special in enumerate((np.nan, -0.0, 0.0, np.inf, -np.inf)):
        x.reshape(-1)[k :: 11 + k] = special
    return x


def order(x: Any, axis: int, descending: bool) -> Any:
    """Return NumPy's stable order; a descending one keeps equal elements in theirs, too."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(back, axis)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_and_argsort(kind: str, descending: bool) -> None:
    for shape, axis in SHAPES:
        x = sample(shape, kind)
        operand = tb.asarray(x, device="opencl")
        wanted = order(x, axis, descending)
        np.testing.assert_array_equal(tb.argsort(operand, axis=axis, descending=descending).numpy(), wanted)
        got = tb.sort(operand, axis=axis, descending=descending).numpy()
        ordered = np.take_along_axis(x, wanted, axis)
        np.testing.assert_array_equal(got, ordered)
        if kind.startswith("float"):
            zero = got == 0
            np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(ordered[zero]))


def test_what_is_sorted_may_be_a_view() -> None:
    x = sample((70, 90), "float32")
    operand = tb.asarray(x, device="opencl")
    np.testing.assert_array_equal(tb.sort(operand.T[::2], axis=0).numpy(), np.sort(x.T[::2], 0))
    np.testing.assert_array_equal(tb.sort(operand[:, ::-3], axis=1).numpy(), np.sort(x[:, ::-3], 1))


@pytest.mark.parametrize("mode", ["set", "add", "multiply", "min", "max"])
@pytest.mark.parametrize(
    ("rows", "count", "wide"), [(9, 5, 0), (9, 3000, 4), (70000, 5000, 0), (300, 9000, 7)]
)
def test_scatter_is_in_order(rows: int, count: int, wide: int, mode: str) -> None:
    tail = (wide,) if wide else ()
    x, value = (RNG.normal(size=(n, *tail)).astype("f4") for n in (rows, count))
    i = RNG.integers(0, rows, count)
    wanted = x.copy()
    if mode == "set":
        wanted[i] = value
    else:
        ufunc = {"add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
        ufunc.at(wanted, i, value)
    scatter = tb.ops.indexing.gather_scatter.scatter
    a, b, c = (tb.asarray(v, device="opencl") for v in (x, value, i))
    np.testing.assert_array_equal(scatter(a, b, c, mode=mode).numpy(), wanted)


def test_scatter_of_many_reports_an_index_out_of_range() -> None:
    x = tb.zeros((50,), device="opencl")
    i = np.arange(5000) % 50
    i[4321] = 50
    value = tb.ones((5000,), device="opencl")
    with pytest.raises(IndexError, match="index 50 is out of range"):
        tb.ops.indexing.gather_scatter.scatter(x, value, tb.asarray(i, device="opencl"), mode="add").numpy()
