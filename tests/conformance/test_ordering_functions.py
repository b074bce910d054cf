"""Sets, searches, scans and quantiles on every device, against NumPy and plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from hypothesis import given
from hypothesis import strategies as st
from tensorbus.dtypes import definition as dt
from tensorbus_conformance.references.ordering import key

from agreement import check
from installed import dtypes as dtypes_of
from samples import arrays, shapes

NAN, INF = float("nan"), float("inf")
X = np.array([[3.0, -1.0, 3.0, 0.5], [2.0, 3.0, -7.0, 2.0]], np.float32)
KINDS = (dt.bool_, dt.int8, dt.uint8, dt.int64, dt.float32, dt.complex64)
Call = Callable[[str], Any]


def t(a: Any, device: str) -> tb.Tensor:
    return tb.asarray(a, device=device)


@given(data=st.data())
def test_unique(device: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([d for d in KINDS if d in dtypes_of(device)]))
    x = data.draw(arrays(shapes(), dtype, data.draw(st.sampled_from(("any", "small")))))
    unique = tb.unique_all(t(x, device))
    assert unique._fields == ("values", "indices", "inverse_indices", "counts")
    values, indices, inverse, counts = (f.numpy() for f in unique)
    assert values.dtype == x.dtype
    assert (indices.dtype, inverse.dtype, counts.dtype) == (np.int64,) * 3
    flat = x.reshape(-1)
    seen: list[Any] = []
    for k, v in enumerate(flat.tolist()):
        if v not in seen:  # NaN is never equal to an earlier one, unless it is the same object
            seen.append(v)
            assert any(k == int(i) for i in indices)
    assert len(values) == len(seen)
    assert int(counts.sum()) == flat.size
    assert inverse.shape == x.shape
    np.testing.assert_array_equal(values[inverse], x)
    np.testing.assert_array_equal(flat[indices], values)
    for k, count in enumerate(counts):
        assert int(count) == np.count_nonzero(inverse == k)
    if not dtype.is_complex:
        order = [key(v) for v in values.tolist()]
        assert order == sorted(order)
    assert [a.tolist() for a in tb.unique_counts(t(x, device))][1] == counts.tolist()
    assert [a.tolist() for a in tb.unique_inverse(t(x, device))][1] == inverse.tolist()
    np.testing.assert_array_equal(tb.unique_values(t(x, device)).numpy(), values)


def test_nans_are_distinct_and_zeros_are_not(device: str) -> None:
    unique = tb.unique_all(t(np.array([NAN, 0.0, NAN, -0.0], np.float32), device))
    assert unique.values.shape == (3,)
    assert unique.counts.tolist() == [2, 1, 1]
    assert unique.inverse_indices.tolist() == [1, 0, 2, 0]


@given(data=st.data())
def test_isin(device: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([d for d in KINDS if d in dtypes_of(device)]))
    x, y = (data.draw(arrays(shapes(), dtype, "small")) for _ in range(2))
    invert = data.draw(st.booleans())
    result = tb.isin(t(x, device), t(y, device), invert=invert)
    assert result.dtype is tb.bool
    np.testing.assert_array_equal(result.numpy(), np.isin(x, y, invert=invert))


def test_isin_of_numbers_and_nan(device: str) -> None:
    x = t(np.array([1.0, NAN, 2.0], np.float32), device)
    assert tb.isin(x, 2).tolist() == [False, False, True]
    assert tb.isin(1.0, x).tolist() is True
    assert tb.isin(x, x).tolist() == [True, False, True]


CASES: dict[str, tuple[Call, Any]] = {
    "count_nonzero": (lambda d: tb.count_nonzero(t(X * (X > 0), d), axis=1), np.array([3, 3])),
    "sum in a dtype": (
        lambda d: tb.sum(t(np.array([100, 100], np.int8), d), dtype="int8"), np.array(-56, np.int8),
    ),
    "sum of bools in int32": (
        lambda d: tb.sum(t(X > 0, d), axis=0, dtype=tb.int32), np.array([2, 1, 1, 2], np.int32),
    ),
    "prod in a dtype": (
        lambda d: tb.prod(t(np.array([200, 2], np.uint8), d), dtype="uint8"), np.array(144, np.uint8),
    ),
    "argmax of all, kept": (lambda d: tb.argmax(t(X, d), keepdims=True), np.array([[0]])),
    "argmin of all": (lambda d: tb.argmin(t(X, d)), np.array(6)),
    "cumulative_sum in a dtype": (
        lambda d: tb.cumulative_sum(t(np.array([100, 100], np.int8), d), dtype="int8"),
        np.array([100, -56], np.int8),
    ),
    "cumulative_sum with the initial": (
        lambda d: tb.cumulative_sum(t(X, d), axis=0, include_initial=True),
        np.concatenate([np.zeros((1, 4), np.float32), np.cumsum(X, 0)]),
    ),
    "cumulative_prod with the initial": (
        lambda d: tb.cumulative_prod(t(X, d), axis=-1, include_initial=True),
        np.concatenate([np.ones((2, 1), np.float32), np.cumprod(X, 1)], 1),
    ),
    "cumsum": (lambda d: tb.cumsum(t(X, d), 0), np.cumsum(X, 0)),
    "cumprod": (lambda d: tb.cumprod(t(X, d), 0), np.cumprod(X, 0)),
    "cummax": (lambda d: tb.cummax(t(X, d), 1).values, np.maximum.accumulate(X, 1)),
    "cummax places": (lambda d: tb.cummax(t(X, d), 1).indices, np.array([[0, 0, 2, 2], [0, 1, 1, 1]])),
    "cummin places": (lambda d: tb.cummin(t(X, d), -1).indices, np.array([[0, 1, 1, 1], [0, 0, 2, 2]])),
    "cummax of NaN": (
        lambda d: tb.cummax(t(np.array([1.0, NAN, 2.0], np.float32), d), 0).indices, np.array([0, 1, 1]),
    ),
    "diff": (lambda d: tb.diff(t(X, d)), np.diff(X)),
    "diff of diffs": (lambda d: tb.diff(t(X, d), n=3), np.diff(X, n=3)),
    "diff beyond the end": (lambda d: tb.diff(t(X, d), n=9), np.diff(X, n=9)),
    "diff of bools": (lambda d: tb.diff(t(X > 0, d)), np.diff(X > 0)),
    "diff with neighbours": (
        lambda d: tb.diff(t(X, d), axis=0, prepend=t(X[:1], d), append=t(X[1:] * 2, d)),
        np.diff(X, axis=0, prepend=X[:1], append=X[1:] * 2),
    ),
    "topk": (lambda d: tb.topk(t(X, d), 2).values, -np.sort(-X)[:, :2]),
    "topk places": (lambda d: tb.topk(t(X, d), 2).indices, np.array([[0, 2], [1, 0]])),
    "topk of none": (lambda d: tb.topk(t(X, d), 0, axis=0).values, X[:0]),
    "the smallest": (lambda d: tb.topk(t(X, d), 1, axis=0, largest=False).values, X.min(0, keepdims=True)),
    "kthvalue": (lambda d: tb.kthvalue(t(X, d), 2).values, np.sort(X)[:, 1]),
    "kthvalue place": (lambda d: tb.kthvalue(t(X, d), 4, keepdims=True).indices, np.array([[2], [1]])),
    "median": (lambda d: tb.median(t(X, d)), np.median(X)),
    "median of rows": (lambda d: tb.median(t(X, d), 1), np.median(X, 1)),
    "median kept": (lambda d: tb.median(t(X[:, :3], d), keepdims=True), np.median(X[:, :3], keepdims=True)),
    "median of integers": (lambda d: tb.median(t(np.array([4, 1, 7, 2]), d)), np.array(3.0, np.float32)),
    "median beside infinity": (
        lambda d: tb.median(t(np.array([-np.inf, 1.0], np.float32), d)), np.array(-np.inf, np.float32),
    ),
    "median of NaN": (
        lambda d: tb.median(t(np.array([[1.0, NAN, 0.0], [3.0, 2.0, 4.0]], np.float32), d), 1),
        np.array([NAN, 3.0], np.float32),
    ),
    "quantile": (lambda d: tb.quantile(t(X, d), 0.3), np.quantile(X, 0.3).astype(np.float32)),
    "quantiles of rows": (
        lambda d: tb.quantile(t(X, d), t(np.array([0.1, 1.0], np.float32), d), 1, keepdims=True),
        np.quantile(X, [0.1, 1.0], 1, keepdims=True).astype(np.float32),
    ),
    "quantile of infinities": (
        lambda d: tb.quantile(t(np.array([-INF, INF, INF], np.float32), d), 0.6), np.array(INF, np.float32),
    ),
    "quantile of NaN": (
        lambda d: tb.quantile(t(np.array([1.0, NAN], np.float32), d), 0.0), np.array(NAN, np.float32),
    ),
    "searchsorted with a sorter": (
        lambda d: tb.searchsorted(t(np.array([5, 1, 3]), d), 3, sorter=t(np.array([1, 2, 0]), d)),
        np.array(1),
    ),
    "searchsorted behind": (
        lambda d: tb.searchsorted(t(np.array([1, 3, 3]), d), t(np.array([3, 0]), d), side="right"),
        np.array([3, 0]),
    ),
    "bucketize": (
        lambda d: tb.bucketize(t(X, d), t(np.array([0.0, 2.0], np.float32), d)),
        np.searchsorted([0.0, 2.0], X),
    ),
    "bincount": (lambda d: tb.bincount(t(np.array([3, 0, 3]), d), minlength=6), np.array([1, 0, 0, 2, 0, 0])),
    "bincount of nothing": (lambda d: tb.bincount(t(np.zeros(0, np.int64), d)), np.zeros(0, np.int64)),
    "bincount of weights": (
        lambda d: tb.bincount(t(np.array([1, 1]), d), t(np.array([0.5, 2.0], np.float32), d)),
        np.array([0.0, 2.5], np.float32),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(device: str, name: str) -> None:
    call, expected = CASES[name]
    actual = call(device)
    assert str(actual.device) == f"{device}:0"
    assert actual.numpy().dtype == expected.dtype
    check(actual.numpy(), np.asarray(expected, np.float64 if expected.dtype.kind == "f" else None), 8)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(3000,), (7, 600), (600, 7), (2, 300, 3)])
def test_long_axes_with_many_equal_elements(device: str, dtype: str, shape: tuple[int, ...]) -> None:
    draw = np.random.default_rng(sum(shape))
    x = draw.integers(0, 2 if dtype == "bool" else 40, shape).astype(dtype)
    if dtype == "float32":
        x[draw.random(shape) < 0.01] = NAN
        x[draw.random(shape) < 0.01] = -INF
    axis = int(np.argmax(shape))
    for descending in (False, True):
        turned = np.flip(x, axis) if descending else x
        order = np.argsort(turned, axis=axis, kind="stable")
        order = shape[axis] - 1 - np.flip(order, axis) if descending else order
        expected = np.take_along_axis(x, order, axis)
        actual = tb.argsort(t(x, device), axis=axis, descending=descending)
        np.testing.assert_array_equal(actual.numpy(), order)
        ordered = tb.sort(t(x, device), axis=axis, descending=descending)
        np.testing.assert_array_equal(ordered.numpy(), expected)
    np.testing.assert_array_equal(tb.unique_counts(t(x, device)).counts.numpy(), _counts(x))
    if dtype != "bool":
        actual = tb.cummax(t(x, device), axis).values
        np.testing.assert_array_equal(actual.numpy(), np.maximum.accumulate(x, axis))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_few_of_long_rows(device: str, dtype: str, largest: bool) -> None:
    rng, inf = np.random.default_rng(3), np.inf
    x = np.round(rng.normal(size=(5, 5001)) * 20)  # many equal ones
    x[1, :4000] = -inf if largest else np.nan  # whole stretches behind an infinity, before few others
    x[1, 4000:] = inf
    x[1, 70] = inf
    x[2, 7:] = np.nan
    x[3, ::9], x[3, 1::9], x[3, 2::900] = inf, -inf, np.nan
    x[4] = 0
    x = (
        np.nan_to_num(x, nan=9, posinf=99, neginf=-99).astype(dtype)
        if dtype != "float32"
        else x.astype(dtype)
    )
    operand = t(x, device)
    order = np.stack([sorted(range(5001), key=lambda k: key(row[k]), reverse=largest) for row in x.tolist()])
    for k in (1, 7, 40, 150):
        for value in (tb.topk(operand, k, largest=largest), tb.compile(tb.topk)(operand, k, largest=largest)):
            np.testing.assert_array_equal(value.indices.to("cpu").numpy(), order[:, :k])
            np.testing.assert_array_equal(
                value.values.to("cpu").numpy(), np.take_along_axis(x, order[:, :k], axis=1)
            )


def _counts(x: Any) -> Any:
    return np.unique(x, return_counts=True, equal_nan=False)[1]


@pytest.mark.parametrize("how", ["lower", "higher", "midpoint", "nearest", "linear"])
def test_quantiles_between_elements(device: str, how: Any) -> None:
    for share in (0.0, 0.25, 0.45, 1.0):
        result = tb.quantile(t(X, device), share, 1, interpolation=how)
        check(result.numpy(), np.quantile(X.astype(np.float64), share, 1, method=how), 8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_quantiles_of_more_elements_than_16_bits_count(device: str, dtype: str) -> None:
    if getattr(tb, dtype) not in dtypes_of(device):
        pytest.skip(f"{device} has no {dtype}")
    x = tb.asarray(np.random.default_rng(3).permutation(3001).astype(np.float32) / 8, device=device)
    x = x.to(getattr(tb, dtype))
    order = np.sort(x.to("float32").to("cpu").numpy()).astype(np.float64)
    for quantile, expected in (
        (tb.quantile(x, 0.3, interpolation="nearest"), order[900]),
        (tb.nanquantile(x, 0.3, interpolation="nearest"), order[900]),
        (tb.nanmedian(x), order[1500]),
        (tb.nanmedian(tb.where(x > 360, tb.nan, x)), np.median(order[order <= 360])),
    ):
        assert quantile.dtype is x.dtype
        assert abs(quantile.item() - expected) <= tb.finfo(x.dtype).eps * expected


@pytest.mark.parametrize("density", [False, True])
def test_histogram(device: str, density: bool) -> None:
    weight = np.arange(8, dtype=np.float32).reshape(2, 4)
    for bins, span in ((4, None), (3, (-2.0, 3.0)), ([-1.0, 0.0, 0.5, 9.0], None)):
        for own in (None, weight):
            given_bins = bins if isinstance(bins, int) else t(np.array(bins, np.float32), device)
            result = tb.histogram(
                t(X, device),
                given_bins,
                range=span,
                density=density,
                weight=None if own is None else t(own, device),
            )
            hist, edges = np.histogram(X, bins, range=span, weights=own, density=density)
            check(result.hist.numpy(), hist.astype(np.float64), 8)
            check(result.bin_edges.numpy(), edges, 8)


def test_a_histogram_of_one_value_or_of_integers(device: str) -> None:
    assert tb.histogram(t(np.full(3, 2.0, np.float32), device), 2).bin_edges.tolist() == [1.5, 2.0, 2.5]
    assert tb.histogram(t(np.array([1, 2, 2]), device), 2).hist.tolist() == [1.0, 2.0]
    assert tb.histogram(t(np.zeros(0, np.float32), device), 2).bin_edges.tolist() == [0.0, 0.5, 1.0]


BAD: dict[str, tuple[Call, type[Exception], str]] = {
    "sort of no axis": (lambda d: tb.sort(t(1.0, d), axis=1), tb.AxisError, "0-dimensional"),
    "sort along another": (lambda d: tb.sort(t(X, d), axis=2), tb.AxisError, "axis 2 is out of range"),
    "a scan without an axis": (lambda d: tb.cumulative_sum(t(X, d)), tb.ShapeError, "an axis is needed"),
    "a sum in bool": (lambda d: tb.sum(t(X, d), dtype="bool"), tb.DtypeError, "sum: no result in bool"),
    "more than there are": (lambda d: tb.topk(t(X, d), 5), tb.ArgumentError, "between 0 and 4"),
    "a zeroth value": (lambda d: tb.kthvalue(t(X, d), 0), tb.ArgumentError, "counts from 1"),
    "a median of nothing": (lambda d: tb.median(t(X[:0], d)), tb.ShapeError, "of no elements"),
    "a quantile of nothing": (lambda d: tb.quantile(t(X[:0], d), 0.5, 0), tb.ShapeError, "of no elements"),
    "a quantile beyond": (lambda d: tb.quantile(t(X, d), 1.5), tb.ArgumentError, r"q must lie in \[0, 1\]"),
    "another interpolation": (
        lambda d: tb.quantile(t(X, d), 0.5, interpolation="cubic"), tb.ArgumentError, "'cubic'",
    ),
    "another side": (
        lambda d: tb.searchsorted(t(X[0], d), 1.0, side="up"), tb.ArgumentError, "'left' or 'right'",
    ),
    "rows that do not belong": (
        lambda d: tb.searchsorted(t(X, d), t(X[0], d)), tb.ShapeError, "must have 1 dimension",
    ),
    "a sorter too short": (
        lambda d: tb.searchsorted(t(X[0], d), 1.0, sorter=t(np.array([0]), d)), tb.ShapeError, "a sorter of",
    ),
    "counts of floats": (lambda d: tb.bincount(t(X[0], d)), tb.DtypeError, "of integers is needed"),
    "counts below zero": (lambda d: tb.bincount(t(np.array([-1]), d)), tb.ArgumentError, "got -1"),
    "weights of another shape": (
        lambda d: tb.bincount(t(np.array([1]), d), t(X, d)), tb.ShapeError, "weights of shape",
    ),
    "no bins": (lambda d: tb.histogram(t(X, d), 0), tb.ArgumentError, "at least 1 bin"),
    "a range backwards": (
        lambda d: tb.histogram(t(X, d), 2, range=(1.0, 0.0)), tb.ArgumentError, "finite and increasing",
    ),
    "a histogram of NaN": (
        lambda d: tb.histogram(t(np.array([NAN], np.float32), d)), tb.ArgumentError, "finite and increasing",
    ),
    "negative differences": (lambda d: tb.diff(t(X, d), n=-1), tb.ArgumentError, "n must be >= 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_refused(device: str, name: str) -> None:
    call, error, text = BAD[name]
    with pytest.raises(error, match=text):
        call(device)


@pytest.mark.parametrize("shape", [(0,), (1,), (2, 0, 3), (7, 1), (300, 70), (1, 20000), (20000, 1)], ids=str)
def test_bools_are_put_in_order_and_found(device: str, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    for share in (0.0, 0.5, 1.0):
        x = rng.random(shape) < share
        for axis in range(len(shape)):
            for descending in (False, True):
                actual = tb.argsort(t(x, device), axis=axis, descending=descending).numpy()
                np.testing.assert_array_equal(
                    actual, np.argsort(x ^ descending, axis=axis, kind="stable"), strict=True
                )
        for actual, right in zip(tb.nonzero(t(x, device)), np.nonzero(x), strict=True):
            np.testing.assert_array_equal(actual.numpy(), right, strict=True)
        np.testing.assert_array_equal(t(x, device)[t(x, device)].numpy(), x[x])
