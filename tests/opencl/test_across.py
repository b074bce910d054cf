"""Reductions in vectors, down columns and along rows: at the edges of panels, chunks and steps; places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorbus.dtypes import definition as dt

from error_bounds import assert_within, gamma, of_sum, stored
from opencl_bench import Bench

RNG = np.random.default_rng(0)
DOWN = [
    ((1, 32), (0,)), ((7, 40), (0,)), ((8, 33), (0,)), ((9, 47), (0,)), ((65, 1030), (0,)),
    ((2500, 65), (0,)), ((4, 5, 34), (0, 1)), ((3, 70, 50), (1,)), ((70, 3, 50), (0,)),
    ((2, 300, 3, 36), (1, 2)),
]  # fmt: skip
SHAPES = [(1, 32), (3, 47), (9, 40), (100, 33), (65, 1030), (2500, 65), (3, 40000)]


@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("shape", "axis"), DOWN)
def test_down_columns(bench: Bench, shape: tuple[int, ...], axis: tuple[int, ...], name: str) -> None:
    x = RNG.normal(size=shape).astype(name)
    value = bench.put(x)
    attrs: dict[str, Any] = {"axis": axis, "keepdims": False}
    wide = "float64" if name == "float64" else "float32"
    total, count = x.astype("f8").sum(axis), x.size // x.sum(axis).size
    bound = 2 * of_sum(x, axis, wide)
    assert_within(bench.run("sum", value, **attrs), total, bound + stored(total, name) * (name == "float16"))
    np.testing.assert_array_equal(bench.run("max", value, **attrs), x.max(axis))
    np.testing.assert_array_equal(bench.run("min", value, **attrs), x.min(axis))
    near = bench.put((1 + x / 1000).astype(name))
    wanted = (1 + x / 1000).astype(name).astype("f8").prod(axis)
    bound = 2 * gamma(count, wide) * wanted + 2 * stored(wanted, name) * (name == "float16")
    assert_within(bench.run("prod", near, **attrs), wanted, bound)


def test_a_nan_stays_in_its_column(bench: Bench) -> None:
    x = RNG.normal(size=(300, 70)).astype("f4")
    x[299, 0] = x[17, 33] = x[8, 69] = np.nan
    x[5, 1], x[6, 2] = np.inf, -np.inf
    for op, reference in (("max", np.max), ("min", np.min), ("sum", np.sum)):
        got = bench.run(op, x, axis=(0,), keepdims=False)
        finite = np.where(np.isfinite(x), x, 0)
        bound = of_sum(finite, 0, "float32") if op == "sum" else 0
        assert_within(got, reference(x.astype("f8"), axis=0), bound)


def special(shape: tuple[int, ...], kind: str, name: str) -> Any:
    match kind:
        case "normal":
            return RNG.normal(size=shape).astype(name)
        case "ties":
            return RNG.integers(0, 3, shape).astype(name)
        case "equal":
            return np.full(shape, -np.inf, name)
        case "infinite":
            return RNG.choice(np.asarray([-np.inf, np.inf, 0], name), shape)
        case "one NaN":
            x = RNG.normal(size=shape).astype(name)
            x.reshape(-1)[RNG.integers(0, x.size)] = np.nan
            return x
        case _:
            return RNG.choice(np.asarray([-np.inf, np.inf, np.nan, 1], name), shape)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("kind", ["normal", "ties", "equal", "infinite", "one NaN", "many NaN"])
@pytest.mark.parametrize("shape", SHAPES)
def test_places(bench: Bench, shape: tuple[int, ...], kind: str, name: str) -> None:
    x = RNG.integers(-3, 3, shape, name) if name == "int32" else special(shape, kind, name)
    value = bench.put(x, dt.dtype(name))
    for op, reference in (("argmax", np.argmax), ("argmin", np.argmin)):
        for axis in (0, 1):
            got = bench.run(op, value, axis=axis, keepdims=False)
            assert got.dtype == np.int64
            np.testing.assert_array_equal(got, reference(x, axis=axis), err_msg=f"{op} over axis {axis}")
        assert bench.run(op, bench.put(x.reshape(-1), dt.dtype(name)), axis=0, keepdims=False) == reference(x)


def test_places_in_views_of_three_axes(bench: Bench) -> None:
    x = RNG.integers(0, 50, (40, 37, 65)).astype("f4")
    value = bench.put(x)
    turned = bench.prepare("permute_dims", (value,), axes=(2, 0, 1))(value)
    for axis in (0, 1, 2):
        got = bench.run("argmax", value, axis=axis, keepdims=False)
        np.testing.assert_array_equal(got, x.argmax(axis))
        got = bench.run("argmin", turned, axis=axis, keepdims=False)
        np.testing.assert_array_equal(got, x.transpose(2, 0, 1).argmin(axis))
