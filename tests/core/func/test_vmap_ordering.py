"""Functions of order and places under ``vmap`` are what a loop over the examples gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import Tensor

from error_bounds import assert_alike

X = tb.asarray(np.random.default_rng(0).permutation(60).reshape(3, 4, 5).astype(np.float64), device="cpu")
LINE = tb.asarray([10.0, 20.0, 30.0, 50.0], dtype="float64", device="cpu")
PLACES = tb.asarray([[0, -1, 2, 2, 1]], device="cpu")

CASES: dict[str, Callable[[Tensor], Tensor]] = {
    "sort": lambda x: tb.sort(x, axis=0, descending=True),
    "argsort": lambda x: tb.argsort(x),
    "cumulative_sum": lambda x: tb.cumulative_sum(x, axis=1, include_initial=True),
    "sum in a dtype": lambda x: tb.sum(x, axis=0, dtype="float32"),
    "cumprod": lambda x: tb.cumprod(x / 10, 0),
    "cummax": lambda x: tb.cummax(x, -1).indices,
    "take_along_axis": lambda x: tb.take_along_axis(x, PLACES, axis=0),
    "scatter_along_axis": lambda x: tb.scatter_along_axis(x, PLACES, x[:1], axis=0, mode="max"),
    "searchsorted in one line": lambda x: tb.searchsorted(LINE, x),
    "searchsorted of one": lambda x: tb.searchsorted(tb.sort(x[0]), LINE),
    "searchsorted in lines of their own": lambda x: tb.searchsorted(tb.sort(x[0]), x),
    "searchsorted in rows": lambda x: tb.searchsorted(tb.sort(x), x, side="right"),
    "topk": lambda x: tb.topk(x, 2, axis=0).values,
    "quantile": lambda x: tb.quantile(x, 0.3, 1),
    "median": lambda x: tb.median(x),
    "index_add": lambda x: tb.index_add(x, 0, tb.asarray([1, 1], device="cpu"), x[:2]),
    "scatter_reduce": lambda x: tb.scatter_reduce(x, 0, PLACES[:, :3] % 2, x * 2, "mean"),
    "segment_prod": lambda x: tb.segment_prod(x, tb.asarray([1, 0, 1, 1], device="cpu"), 3),
    "one_hot": lambda x: tb.one_hot(x[0].to("int64"), 60),
    "einsum": lambda x: tb.einsum("ij,kj->ik", x, x),
    "diagonal": lambda x: tb.diagonal(x, -1),
    "roll": lambda x: tb.roll(x, 2, axis=1),
    "a mask assigned": lambda x: tb.masked_fill(x, x > 30, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_vmap_is_a_loop(name: str) -> None:
    f = CASES[name]
    expected = tb.stack([f(X[k]) for k in range(X.shape[0])])
    actual = tb.vmap(f)(X)
    assert actual.dtype is expected.dtype
    assert_alike(actual, expected, roundings=8)  # sums and products of five
