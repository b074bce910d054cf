"""Joining along an axis and places in sorted values, by C: what NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest
import tensorbus as tb


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_places_are_those_of_numpy(dtype: str, side: str) -> None:
    drawn = np.random.default_rng(0)
    values = (drawn.standard_normal(9001) * 20).astype(dtype)
    if values.dtype.kind == "f":
        values[:7] = np.nan, np.inf, -np.inf, 0.0, -0.0, 20.0, np.nan
    for length in (1, 2, 3, 7, 100, 1000):
        line = np.sort((drawn.standard_normal(length) * 20).astype(dtype))
        lines = [line]
        if values.dtype.kind == "f":
            lines.append(np.append(line, [np.inf, np.nan, np.nan]).astype(dtype))
        for each in lines:
            places = tb.searchsorted(
                tb.asarray(each, device="cpu"), tb.asarray(values, device="cpu"), side=side
            )
            np.testing.assert_array_equal(np.asarray(places), np.searchsorted(each, values, side=side))
    rows = np.sort((drawn.standard_normal((30, 41)) * 20).astype(dtype), axis=-1)
    own = (drawn.standard_normal((30, 401)) * 20).astype(dtype)
    places = np.asarray(
        tb.searchsorted(tb.asarray(rows, device="cpu"), tb.asarray(own, device="cpu"), side=side)
    )
    for k in range(30):
        np.testing.assert_array_equal(places[k], np.searchsorted(rows[k], own[k], side=side))


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "float64", "complex128"])
@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        (((1000, 3, 4), (1000, 5, 4)), 1),
        (((5000, 1), (5000, 2), (5000, 4)), 1),
        (((90, 100, 1),) * 3, -1),
        (((40, 300), (40, 8), (40, 1)), -1),
    ],
)
def test_rows_lie_side_by_side(shapes: tuple[tuple[int, ...], ...], axis: int, dtype: str) -> None:
    drawn = np.random.default_rng(0)
    arrays = [(drawn.standard_normal(shape) * 9).astype(dtype) for shape in shapes]
    arrays[0] = np.asfortranarray(arrays[0])
    joined = tb.concat([tb.asarray(x, device="cpu") for x in arrays], axis=axis)
    np.testing.assert_array_equal(np.asarray(joined), np.concatenate(arrays, axis=axis))
