"""Writing by indices, ids and masks on every device, against loops in Python; and gradients at ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorbus.dtypes import definition as dt

from agreement import check, wide
from installed import dtypes as dtypes_of
from samples import Array, arrays, shapes

INF = float("inf")
X = np.array([[3.0, -1.0, 4.0], [2.0, 0.5, -7.0]], np.float32)
START = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -INF, "amin": INF}
COMBINE: dict[str, Callable[[float, float], float]] = {
    "sum": lambda a, b: a + b, "mean": lambda a, b: a + b, "prod": lambda a, b: a * b,
    "amax": max, "amin": min,
}  # fmt: skip
Call = Callable[[str], Any]


def t(a: Any, device: str) -> tb.Tensor:
    return tb.asarray(a, device=device)


def reduced(x: Array, axis: int, index: Array, src: Array, how: str, include_self: bool) -> Array:
    """Return what scatter_reduce should, one element after the other."""
    out, count = x.copy(), np.full(x.shape, int(include_self))
    for at in np.ndindex(*index.shape):
        place = (*at[:axis], int(index[at]), *at[axis + 1 :])
        old = START[how] if count[place] == 0 else out[place]
        out[place] = COMBINE[how](old, src[at])
        count[place] += 1
    if how != "mean":
        return out
    whole = np.maximum(count, 1)
    return np.floor_divide(out, whole) if x.dtype.kind in "iu" else out / whole


@given(data=st.data())
def test_scatter_reduce(device: str, data: st.DataObject) -> None:
    usable = [d for d in (dt.int32, dt.float32, dt.float64) if d in dtypes_of(device)]
    dtype = data.draw(st.sampled_from(usable))
    x = data.draw(arrays(shapes(1, least=1), dtype, "small"))
    axis = data.draw(st.integers(0, x.ndim - 1))
    shape = tuple(data.draw(st.integers(0, 5 if k == axis else n)) for k, n in enumerate(x.shape))
    index = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(0, x.shape[axis] - 1)))
    more = tuple(n + data.draw(st.integers(0, 1)) for n in shape)
    src = data.draw(arrays(more, dtype, "small"))
    how, own = data.draw(st.sampled_from(sorted(COMBINE))), data.draw(st.booleans())
    result = tb.scatter_reduce(t(x, device), axis, t(index, device), t(src, device), how, include_self=own)
    assert result.dtype is dtype
    check(result.numpy(), reduced(wide(x), axis, index, wide(src), how, own), 16, 64.0)


def _segments(how: str, count: int | None) -> Call:
    return lambda d: getattr(tb, f"segment_{how}")(t(X, d), t(np.array([2, 2]), d), count)


CASES: dict[str, tuple[Call, Any]] = {
    "scatter_add": (
        lambda d: tb.scatter_add(t(X, d), 1, t(np.array([[0, 0, 2]]), d), t(X, d)),
        np.array([[5.0, -1, 8], [2, 0.5, -7]]),
    ),
    "scatter_add of a number": (
        lambda d: tb.scatter_add(t(X, d), -1, t(np.array([[1], [-1]]), d), 1.0),
        np.array([[3.0, 0, 4], [2, 0.5, -6]]),
    ),
    "scatter_along_axis of a number": (
        lambda d: tb.scatter_along_axis(t(X, d), t(np.array([[1]]), d), 9, axis=0),
        np.array([[3.0, -1, 4], [9, 9, 9]]),
    ),
    "index_select": (lambda d: tb.index_select(t(X, d), 1, t(np.array([-1, 0]), d)), X[:, [-1, 0]]),
    "index_select of one": (lambda d: tb.index_select(t(X, d), 0, t(1, d)), X[[1]]),
    "index_add": (
        lambda d: tb.index_add(t(X, d), 1, t(np.array([0, 0]), d), t(X[:, :2], d), alpha=2),
        X + np.array([[4.0, 0, 0], [5, 0, 0]]),
    ),
    "index_copy": (
        lambda d: tb.index_copy(t(X, d), 0, t(np.array([1, 1]), d), t(X, d)), X[[0, 1]],
    ),
    "masked_fill": (lambda d: tb.masked_fill(t(X, d), t(X < 0, d), INF), np.where(X < 0, INF, X)),
    "masked_fill by a row": (
        lambda d: tb.masked_fill(t(X, d), t(X[1] < 1, d), t(np.float32(0), d)), np.where(X[1] < 1, 0, X),
    ),
    "masked_select": (lambda d: tb.masked_select(t(X, d), t(X > 0, d)), X[X > 0]),
    "masked_select by a row": (lambda d: tb.masked_select(t(X, d), t(X[1] > 0, d)), X[:, X[1] > 0].ravel()),
    "segment_sum": (_segments("sum", None), np.stack([X[0] * 0, X[0] * 0, X.sum(0)])),
    "segment_mean": (_segments("mean", 4), np.stack([X[0] * 0, X[0] * 0, X.mean(0), X[0] * 0])),
    "segment_prod": (_segments("prod", None), np.stack([X[0] * 0 + 1, X[0] * 0 + 1, X.prod(0)])),
    "segment_max": (_segments("max", 3), np.stack([X[0] - INF, X[0] - INF, X.max(0)])),
    "segment_min": (_segments("min", 3), np.stack([X[0] + INF, X[0] + INF, X.min(0)])),
    "segment_max of integers": (
        lambda d: tb.segment_max(t(np.array([1, 2]), d), t(np.array([1, 1]), d)), np.array([-(2**63), 2]),
    ),
    "segments of nothing": (
        lambda d: tb.segment_sum(t(X[:0], d), t(np.zeros(0, np.int64), d)), np.zeros((0, 3)),
    ),
    "one_hot": (lambda d: tb.one_hot(t(np.array([[1], [0]]), d), 3), np.array([[[0, 1, 0]], [[1, 0, 0]]])),
    "one_hot of a number": (lambda d: tb.one_hot(t(2, d)), np.array([0, 0, 1])),
    "one_hot of nothing": (lambda d: tb.one_hot(t(np.zeros(0, np.int64), d), 2), np.zeros((0, 2), np.int64)),
    "a mask without elements": (lambda d: t(X, d)[t(np.zeros((0, 3), bool), d)], np.zeros(0, np.float32)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(device: str, name: str) -> None:
    call, expected = CASES[name]
    check(call(device).numpy(), np.asarray(expected), 8)


@pytest.mark.parametrize("how", ["sum", "max", "min"])
@pytest.mark.parametrize(("rows", "segments", "width"), [(5000, 37, ()), (900, 700, (3,)), (60, 2, (200,))])
def test_many_rows(device: str, how: str, rows: int, segments: int, width: tuple[int, ...]) -> None:
    draw = np.random.default_rng(rows)
    data = draw.integers(-50, 50, (rows, *width)).astype(np.int32)
    ids = draw.integers(0, segments, rows)
    combine = {"sum": np.add, "max": np.maximum, "min": np.minimum}[how]
    ends = np.iinfo(np.int32)
    expected = np.full((segments, *width), {"sum": 0, "max": ends.min, "min": ends.max}[how], np.int32)
    combine.at(expected, ids, data)
    actual = getattr(tb, f"segment_{how}")(t(data, device), t(ids, device), segments)
    assert np.array_equal(actual.numpy(), expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_long_axes(device: str, axis: int) -> None:
    draw = np.random.default_rng(axis)
    x = draw.integers(-50, 50, (300, 40)).astype(np.float32)
    places = draw.integers(-x.shape[axis], x.shape[axis], (300, 40) if axis else (700, 40))
    taken = np.take_along_axis(x, places, axis)
    assert np.array_equal(tb.take_along_axis(t(x, device), t(places, device), axis=axis).numpy(), taken)
    added = tb.scatter_along_axis(t(x, device), t(places, device), t(taken, device), axis=axis, mode="add")
    rows, columns = np.indices(places.shape)
    expected = x.copy()
    np.add.at(expected, (rows, places) if axis else (places, columns), taken)
    assert np.array_equal(added.numpy(), expected)


def test_nan_wins(device: str) -> None:
    x, at = t(np.array([1.0, 2.0], np.float32), device), t(np.array([0, 0]), device)
    values = t(np.array([float("nan"), 5.0], np.float32), device)
    for mode in ("min", "max"):
        assert np.isnan(tb.scatter(x, values, at, mode=mode).numpy()).tolist() == [True, False]


def _slopes(device: str, mode: str, x: list[float], v: list[float]) -> list[list[float]]:
    a, b = (t(np.array(n, np.float32), device).requires_grad_() for n in (x, v))
    out = tb.scatter(a, b, t(np.array([0, 0, 1]), device), mode=mode)
    grads = tb.grad((out * t(np.array([1.0, 10.0, 100.0], np.float32), device)).sum(), (a, b))
    return [g.tolist() for g in grads if g is not None]


def test_gradients_of_equal_extremes_are_shared(device: str) -> None:
    assert _slopes(device, "max", [4.0, 1.0, 0.0], [4.0, 2.0, 1.0]) == [[0.5, 5.0, 100.0], [0.5, 0.0, 5.0]]
    assert _slopes(device, "min", [9.0, 0.0, 0.0], [4.0, 4.0, 1.0]) == [[0.0, 10.0, 100.0], [0.5, 0.5, 0.0]]


def test_gradients_of_products_with_zeros(device: str) -> None:
    one = _slopes(device, "multiply", [2.0, 3.0, 1.0], [0.0, 5.0, 0.0])
    assert one == [[0.0, 0.0, 100.0], [10.0, 0.0, 30.0]]
    two = _slopes(device, "multiply", [2.0, 0.0, 1.0], [0.0, 0.0, 7.0])
    assert two == [[0.0, 70.0, 100.0], [0.0, 0.0, 0.0]]


def test_gradients_of_equal_running_extremes_go_to_the_last(device: str) -> None:
    x = t(np.array([2.0, 2.0, 1.0], np.float32), device).requires_grad_()
    assert tb.grad(tb.cummax(x, 0).values.sum(), x)[0].tolist() == [1.0, 2.0, 0.0]


I2 = np.array([0, 1])
BAD: dict[str, tuple[Call, type[Exception], str]] = {
    "another mode": (
        lambda d: tb.scatter(t(X, d), t(X, d), t(I2, d), mode="mean"),
        tb.ArgumentError, "mode must be one of",
    ),
    "another reduction": (
        lambda d: tb.scatter_reduce(t(X, d), 0, t(I2[None], d), t(X, d), "max"),
        tb.ArgumentError, "got 'max'",
    ),
    "indices of another rank": (
        lambda d: tb.take_along_axis(t(X, d), t(I2, d), axis=0), tb.ShapeError, "same number of dimensions",
    ),
    "indices that do not broadcast": (
        lambda d: tb.take_along_axis(t(X, d), t(I2[None], d), axis=0), tb.ShapeError, "do not fit",
    ),
    "indices of floats": (
        lambda d: tb.take_along_axis(t(X, d), t(X, d), axis=0), tb.IndexingError, "integer or bool",
    ),
    "places beyond": (
        lambda d: tb.scatter_along_axis(t(X[:, :1], d), t(I2[None], d), 0, axis=0),
        tb.ShapeError, "beyond shape",
    ),
    "a source too short": (
        lambda d: tb.scatter_add(t(X, d), 0, t(I2[:, None], d), t(X[:1], d)), tb.ShapeError, "reach beyond",
    ),
    "a source of another shape": (
        lambda d: tb.index_add(t(X, d), 0, t(I2, d), t(X[:1], d)), tb.ShapeError, "a source of shape",
    ),
    "an index of two dimensions": (
        lambda d: tb.index_select(t(X, d), 0, t(I2[None], d)), tb.ShapeError, "1-dimensional index",
    ),
    "a mask of integers": (lambda d: tb.masked_select(t(X, d), t(I2, d)), tb.DtypeError, "must be bool"),
    "a mask of another length": (
        lambda d: tb.masked_fill(t(X[0], d), t(X[0, 1:] > 0, d), 0.0), tb.ShapeError, "masked_fill: shapes",
    ),
    "a mask too large in place": (
        lambda d: t(X[0], d).masked_fill_(t(X > 0, d), 0.0), tb.ShapeError, "keeps shape",
    ),
    "a filling that does not fit": (
        lambda d: tb.masked_fill(t(I2, d), t(I2 > 0, d), 0.5), tb.DtypeError, "0.5 is not a whole number",
    ),
    "several fillings": (
        lambda d: tb.masked_fill(t(X, d), t(X > 0, d), t(X[0], d)), tb.ShapeError, "0-dimensional",
    ),
    "ids of floats": (lambda d: tb.segment_sum(t(X, d), t(X[:, 0], d)), tb.DtypeError, "must be integers"),
    "too few ids": (
        lambda d: tb.segment_sum(t(X, d), t(I2[:1], d)),
        tb.ShapeError, "one number for each row",
    ),
    "fewer than no segments": (
        lambda d: tb.segment_sum(t(X, d), t(I2, d), -1), tb.ArgumentError, "must be >= 0",
    ),
    "a class too many": (lambda d: tb.one_hot(t(I2, d), 1).numpy(), tb.IndexingError, "out of range"),
    "a class below zero": (lambda d: tb.one_hot(t(-I2, d), 3).numpy(), tb.IndexingError, "out of range"),
    "no classes": (lambda d: tb.one_hot(t(I2[:0], d)), tb.ArgumentError, "must be given"),
    "a place too far": (
        lambda d: tb.take_along_axis(t(X, d), t(I2[:, None] + 2, d), axis=1).numpy(),
        tb.IndexingError, "out of range",
    ),
    "a segment too far": (
        lambda d: tb.segment_sum(t(X, d), t(I2, d), 1).numpy(),
        tb.IndexingError, "out of range",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(device: str, name: str) -> None:
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call(device)
