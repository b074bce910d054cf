"""References of reductions, running sums and matrix products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tensorbus import dtypes as dt
from tensorbus.dtypes import DType

from case import Case, Draw, Sample
from samples import Array, Kind, arrays, shapes


def _sum_dtype(d: DType) -> DType:
    return dt.uint64 if d.kind == "uint" else dt.int64 if d.kind in ("int", "bool") else d


def _axes(draw: Draw, rank: int) -> Any:
    if not rank:
        return draw(st.none() | st.just(()))
    return draw(
        st.none() | st.integers(-rank, rank - 1) | st.lists(st.integers(0, rank - 1), unique=True).map(tuple)
    )


def _over(kind: Kind, *, least: int = 0) -> Callable[[Draw, DType], Sample]:
    def samples(draw: Draw, dtype: DType) -> Sample:
        x = draw(arrays(shapes(least=least), dtype, kind))
        return Sample((x,), {"axis": _axes(draw, x.ndim), "keepdims": draw(st.booleans())})

    return samples


def _along(kind: Kind, *, least: int = 0) -> Callable[[Draw, DType], Sample]:
    def samples(draw: Draw, dtype: DType) -> Sample:
        x = draw(arrays(shapes(1, least=least), dtype, kind))
        return Sample((x,), {"axis": draw(st.integers(-x.ndim, x.ndim - 1))})

    return samples


def _arg_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(1, least=1), dtype))
    whole = draw(st.booleans())
    axis = None if whole else draw(st.integers(-x.ndim, x.ndim - 1))
    return Sample((x,), {"axis": axis, "keepdims": not whole and draw(st.booleans())})


def _in_64_bits(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Array, **attrs: Any) -> Any:
        if x.dtype.kind in "biu":
            x = x.astype(np.uint64 if x.dtype.kind == "u" else np.int64)
        return function(x, **attrs)

    return reference


def _sizes(x: Array, axis: Any, keepdims: bool = False) -> Any:
    size = np.abs(np.where(np.isfinite(x), x, 0)) if x.dtype.kind in "fc" else np.abs(x.astype(np.float64))
    return np.sum(size, axis=axis, keepdims=keepdims)


def _mean(x: Array, axis: Any, keepdims: bool) -> Any:
    count = x.size if axis is None else np.prod([x.shape[a] for a in np.atleast_1d(axis)], dtype=float)
    return (
        np.sum(x, axis=axis, keepdims=keepdims) / count
        if count
        else np.sum(x, axis=axis, keepdims=keepdims) * np.nan
    )


def _matmul_samples(draw: Draw, dtype: DType) -> Sample:
    lead = draw(shapes(0, 2))
    m, k, n = draw(st.tuples(*(st.integers(0, 4),) * 3))
    x = draw(arrays((*lead, m, k), dtype, "moderate"))
    drop = draw(st.integers(0, len(lead)))
    y_lead = tuple(1 if draw(st.booleans()) else length for length in lead[drop:])
    return Sample((x, draw(arrays((*y_lead, k, n), dtype, "moderate"))))


def _matmul(x: Array, y: Array) -> Any:
    return (x[..., :, :, None] * y[..., None, :, :]).sum(-2, dtype=x.dtype)


def _first(best: Callable[..., Any], x: Array, axis: int | None, keepdims: bool) -> Any:
    """The place of the first best element, NaN before all: found element by element."""
    rows = x.reshape(1, -1) if axis is None else np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    found = []
    for row in rows:
        nans = [k for k, v in enumerate(row.tolist()) if v != v]
        values = row.tolist()
        found.append(nans[0] if nans else values.index(best(values)))
    if axis is None:
        return np.array(found[0])
    shape = np.moveaxis(x, axis, -1).shape[:-1]
    result = np.array(found, np.int64).reshape(shape)
    return np.expand_dims(result, axis) if keepdims else result


def _softmax(x: Array, axis: int) -> Any:
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis=axis, keepdims=True)


def _log_softmax(x: Array, axis: int) -> Any:
    centred = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return centred - np.log(np.exp(centred).sum(axis=axis, keepdims=True))


def _int64(_: DType) -> DType:
    return dt.int64


REDUCTIONS: dict[str, Case] = {
    "sum": Case(
        samples=_over("moderate"), reference=_in_64_bits(np.sum), result=_sum_dtype, ulps=8, scale=_sizes,
    ),
    "prod": Case(samples=_over("small"), reference=_in_64_bits(np.prod), result=_sum_dtype, ulps=8),
    "max": Case(samples=_over("any", least=1), reference=np.max),
    "min": Case(samples=_over("any", least=1), reference=np.min),
    "any": Case(samples=_over("any"), reference=np.any, result=lambda _: dt.bool_, dtypes=dt.ALL),
    "all": Case(samples=_over("any"), reference=np.all, result=lambda _: dt.bool_, dtypes=dt.ALL),
    "mean": Case(samples=_over("moderate"), reference=_mean, ulps=8, scale=_sizes),
    "argmax": Case(
        samples=_arg_samples, result=_int64,
        reference=lambda x, axis, keepdims: _first(max, x, axis, keepdims),
    ),
    "argmin": Case(
        samples=_arg_samples, result=_int64,
        reference=lambda x, axis, keepdims: _first(min, x, axis, keepdims),
    ),
    "cumulative_sum": Case(
        samples=_along("moderate"), reference=_in_64_bits(np.cumsum), result=_sum_dtype, ulps=16,
        scale=lambda x, axis: np.cumsum(np.abs(x.astype(np.complex128)), axis=axis),
    ),
    "matmul": Case(
        samples=_matmul_samples, reference=_matmul, ulps=8,
        scale=lambda x, y: _matmul(np.abs(x).astype(np.float64), np.abs(y).astype(np.float64)),
    ),
    "softmax": Case(samples=_along("moderate"), reference=_softmax, ulps=8, scale=lambda x, axis: 1e-3),
    "log_softmax": Case(
        samples=_along("moderate"), reference=_log_softmax, ulps=8,
        scale=lambda x, axis: np.abs(x).max(initial=1.0),
    ),
}  # fmt: skip
