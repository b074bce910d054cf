"""References of reductions, scans, softmax and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum, prod
from typing import Any

import numpy as np
from tensorbus.dtypes.definition import DType, float32

from ..native import Array
from .reference import Reference


def in_64_bits(function: Callable[..., Any]) -> Callable[..., Any]:
    """Integers and bools add up in 64 bits."""

    def reference(x: Array, dtype: Any = None, **attrs: Any) -> Any:
        if x.dtype.kind in "biu":
            x = x.astype(np.uint64 if x.dtype.kind == "u" else np.int64)
        return function(x, **attrs)

    return reference


def sizes(x: Array, axis: Any, keepdims: bool = False, **_: Any) -> Any:
    """Return the sum of the magnitudes, by which the error of a sum is measured."""
    size = np.abs(np.where(np.isfinite(x), x, 0)) if x.dtype.kind in "fc" else np.abs(x.astype(np.float64))
    return np.sum(size, axis=axis, keepdims=keepdims)


def _running(x: Array, axis: int, **_: Any) -> Any:
    return np.cumsum(np.abs(np.where(np.isfinite(x), x, 0)).astype(np.float64), axis=axis)


def _mean(x: Array, axis: Any, keepdims: bool, **_: Any) -> Any:
    count = np.prod([x.shape[a] for a in axis], dtype=float)
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total / count if count else total * np.nan


def matmul(x: Array, y: Array) -> Any:
    """Multiply and sum, without BLAS."""
    return (x[..., :, :, None] * y[..., None, :, :]).sum(-2, dtype=x.dtype)


def _affine(x: Array, y: Array, *added: Array, ends: str) -> Any:
    result = matmul(x, y)
    for other in added:
        result = result + other
    if ends == "gelu_tanh":
        return 0.5 * result * (1 + np.tanh((2 / np.pi) ** 0.5 * (result + 0.044715 * result**3)))
    return np.where(result < 0, 0, result) if ends else result


def _affine_size(*arrays: Array, **_: str) -> Any:
    return _affine(*_sizes_of(arrays), ends="")


def _scaled(x: Array, y: Array, scale_x: Array, scale_y: Array, *bias: Array, dtype: DType) -> Any:
    return sum(bias, start=matmul(x.astype("f8"), y.astype("f8")) * scale_x * scale_y)


def _scaled_size(*arrays: Array, dtype: DType) -> Any:
    """Units for floats of 8 bits keep 14 bits of partial sums: of float32 that is 2**10 units less."""
    narrow = arrays[0].dtype.kind == "f" and dtype is float32
    return _scaled(*_sizes_of(arrays), dtype=dtype) * (2**10 if narrow else 1)


def first(best: Callable[..., Any], x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Return the place of the first best element, NaN before all: found element by element."""
    (a,) = axis
    moved = np.moveaxis(x, a, -1)
    elements = []
    for row in moved.reshape(-1, x.shape[a]).tolist() if moved.size else []:
        nans = [k for k, v in enumerate(row) if v != v]
        elements.append(nans[0] if nans else row.index(best(row)))
    result = np.array(elements, np.int64).reshape(moved.shape[:-1])
    return np.expand_dims(result, a) if keepdims else result


def _softmax(x: Array, axis: int) -> Any:
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return powers / _exact_sum(powers, axis)


def _exact_sum(x: Array, axis: int) -> Any:
    """Sum along an axis, which stays with length 1, and round once: float64 is examined with this too."""
    rows = np.moveaxis(x, axis, -1)
    flat = rows.reshape(prod(rows.shape[:-1]), x.shape[axis])
    sums = [fsum(row) if np.all(np.isfinite(row)) else row.sum() for row in flat]
    return np.expand_dims(np.array(sums, x.dtype).reshape(rows.shape[:-1]), axis)


def _softmax_size(x: Array, axis: int) -> Any:
    """Rounding ``x - max`` costs as many units of its exponential as it has itself."""
    far = np.max(x, axis=axis, keepdims=True, initial=-np.inf) - x
    shares = _softmax(x, axis) * (1 + np.where(np.isfinite(far), far, 0))
    return np.maximum(np.where(np.isfinite(shares), shares, 0), 1e-3)


def _length(x: Array, axis: int) -> int:
    return x.shape[axis]


def _log_softmax(x: Array, axis: int) -> Any:
    centred = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return centred - np.log(_exact_sum(np.exp(centred), axis))


def _logsumexp(x: Array, axis: Any, keepdims: bool) -> Any:
    """Of no elements it is ``-inf``."""
    top = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    result = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return result if keepdims else np.squeeze(result, axis)


def _finite_size(x: Array, **_: Any) -> Any:
    return np.max(np.abs(np.where(np.isfinite(x), x, 0)), initial=1.0)


def _extremes(better: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return running extremes and the place of each, the last of equal ones; NaN, once met, stays."""

    def reference(x: Array, axis: int) -> Any:
        moved = np.moveaxis(x, axis, -1)
        values, places = np.array(moved), np.zeros(moved.shape, np.int64)
        for at in np.ndindex(moved.shape[:-1]):
            best = 0
            for k, v in enumerate(moved[at]):
                top = moved[at][best]
                if v != v or (top == top and (better(v, top) or v == top)):
                    best = k
                values[at][k], places[at][k] = moved[at][best], best
        return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)

    return reference


REFERENCES: dict[str, Reference] = {
    "sum": Reference(function=in_64_bits(np.sum), ulps=8, scale=sizes),
    "prod": Reference(function=in_64_bits(np.prod), ulps=64),
    "max": Reference(function=np.max),
    "min": Reference(function=np.min),
    "any": Reference(function=np.any),
    "all": Reference(function=np.all),
    "mean": Reference(function=_mean, ulps=8, scale=sizes),
    "argmax": Reference(function=lambda x, **attrs: first(max, x, **attrs)),
    "argmin": Reference(function=lambda x, **attrs: first(min, x, **attrs)),
    "cumulative_sum": Reference(function=in_64_bits(np.cumsum), ulps=16, scale=_running),
    "cumulative_prod": Reference(function=in_64_bits(np.cumprod), ulps=64),
    "matmul": Reference(function=matmul, ulps=8, scale=lambda x, y: _magnitudes(x, y)),
    "affine": Reference(function=_affine, ulps=8, scale=_affine_size),
    "scaled_matmul": Reference(function=_scaled, ulps=8, scale=_scaled_size),
    "softmax": Reference(function=_softmax, ulps=8, scale=_softmax_size, terms=_length),
    "log_softmax": Reference(function=_log_softmax, ulps=8, scale=_finite_size, terms=_length),
    "logsumexp": Reference(function=_logsumexp, ulps=8, scale=_finite_size),
}  # fmt: skip


def _magnitudes(x: Array, y: Array) -> Any:
    return matmul(*_sizes_of((x, y)))


def _sizes_of(arrays: Sequence[Array]) -> list[Array]:
    return [np.abs(np.where(np.isfinite(a), a, 0)).astype(np.float64) for a in arrays]
