"""Elements in order without sorting the rest: the places that the whole order has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.ops.ordering.sorting import argsort_part

RNG = np.random.default_rng(5)
KINDS = {
    "drawn": lambda shape: RNG.standard_normal(shape) * 50,
    "few values": lambda shape: RNG.integers(-3, 4, shape).astype(float),
    "one value": np.zeros,
    "rising": lambda shape: np.broadcast_to(np.arange(shape[-1], dtype=float) % 101, shape),
    "falling": lambda shape: np.broadcast_to(-np.arange(shape[-1], dtype=float) % 101, shape),
    "NaN": lambda shape: np.where(RNG.random(shape) < 0.3, np.nan, RNG.integers(-2, 3, shape) * 0.5 - 0.0),
    "only NaN": lambda shape: np.full(shape, np.nan),
}
SHAPES = ((70_000,), (300_000,), (3, 9000), (64, 700), (2, 3, 1100), (40,))
DTYPES = (tb.float32, tb.float64, tb.float16, tb.bfloat16, tb.int64, tb.uint8, tb.bool)


def _order(x: Any, descending: bool) -> Any:
    """The stable order of rows along the last axis: NaN is the largest."""
    wide = x if x.dtype.kind in "iub" else x.astype(np.float64)
    if not descending:
        return np.argsort(wide, axis=-1, kind="stable")
    return x.shape[-1] - 1 - np.argsort(wide[..., ::-1], axis=-1, kind="stable")[..., ::-1]


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_places_are_those_of_the_whole_order(dtype: tb.DType, kind: str) -> None:
    for shape in SHAPES:
        drawn = KINDS[kind](shape)
        if not dtype.is_floating:
            drawn = np.abs(np.nan_to_num(drawn))
        x = tb.asarray(drawn.astype(np.float32)).to(dtype)
        rows = x.to(tb.float32).numpy() if dtype is tb.bfloat16 else x.numpy()
        n = shape[-1]
        for descending in (False, True):
            wanted = _order(rows, descending)
            for start, count in ((0, 1), (0, 9), (3, 4), (n // 2, 1), (n // 3, n // 4), (n - 1, 1), (0, n)):
                actual = argsort_part(x, start=start, count=count, descending=descending)
                np.testing.assert_array_equal(actual.numpy(), wanted[..., start : start + count])


def test_values_along_another_axis_and_of_a_view() -> None:
    x = RNG.standard_normal((900, 5, 4)).astype(np.float32)
    t = tb.asarray(x)
    np.testing.assert_array_equal(tb.topk(t, 6, axis=0).values.numpy(), -np.sort(-x, axis=0)[:6])
    flipped = t[::-1, :, 1:3]
    np.testing.assert_array_equal(
        tb.kthvalue(flipped, 7, axis=0).values.numpy(), np.sort(x[:, :, 1:3], axis=0)[6]
    )


def test_a_gradient_reaches_the_elements_that_were_found() -> None:
    x = tb.asarray(RNG.permutation(50_000).astype(np.float32)).requires_grad_()
    values, places = tb.topk(x, 3)
    values.sum().backward()
    assert sorted(np.flatnonzero(x.grad.numpy())) == sorted(places.tolist())


def test_a_compiled_function_finds_the_same() -> None:
    x = tb.asarray(RNG.integers(0, 50, (7, 3000)).astype(np.float32))
    actual, wanted = tb.compile(lambda x: tb.topk(x, 20))(x), tb.topk(x, 20)
    np.testing.assert_array_equal(actual.indices.numpy(), wanted.indices.numpy())
    np.testing.assert_array_equal(actual.values.numpy(), wanted.values.numpy())
