"""References of the ops that models are made of: convolution, pooling, normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from tensorbus.dtypes import REAL, DType, float8_e4m3fn

from case import Case, Draw, Sample
from movement_cases import windows
from samples import Array, arrays, shapes


def _space(draw: Draw, size: Any, padding: Any, dilation: Any) -> tuple[int, ...]:
    each = zip(size, padding, dilation, strict=True)
    return tuple(max(d * (k - 1) + 1 - 2 * p, 0) + draw(st.integers(0, 2)) for k, p, d in each)


def _per_axis(draw: Draw, rank: int, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw(st.integers(low, high)) for _ in range(rank))


def _conv_samples(draw: Draw, dtype: DType) -> Sample:
    rank, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    batch, depth, wide = draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    size, stride, dilation = (_per_axis(draw, rank, 1, 2 + (k == 0)) for k in range(3))
    padding = _per_axis(draw, rank, 0, 2)
    x = draw(arrays((batch, groups * depth, *_space(draw, size, padding, dilation)), dtype, "unit"))
    weight = draw(arrays((groups * wide, depth, *size), dtype, "unit"))
    return Sample((x, weight), {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups})


def _padded(x: Array, padding: Any, value: Any = 0) -> Array:
    edges = ((0, 0),) * (x.ndim - len(padding)) + tuple((p, p) for p in padding)
    return np.pad(x, edges, constant_values=value)


def _conv(x: Array, weight: Array, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    size = weight.shape[2:]
    rank = len(size)
    cut = windows(_padded(x, padding), size, stride, dilation)
    batch, channels, *rest = cut.shape
    grouped = cut.reshape(batch, groups, 1, channels // groups, *rest)
    rows = weight.reshape(1, groups, weight.shape[0] // groups, weight.shape[1], *(1,) * rank, *size)
    summed = (grouped * rows).sum(axis=(3, *range(4 + rank, 4 + 2 * rank)))
    return summed.reshape(batch, weight.shape[0], *rest[:rank])


def _pool_samples(draw: Draw, dtype: DType) -> Sample:
    rank = draw(st.integers(1, 2))
    size, stride, dilation = (_per_axis(draw, rank, 1, 2 + (k == 0)) for k in range(3))
    padding = tuple(draw(st.integers(0, k // 2)) for k in size)
    lead = draw(shapes(1, 2))
    x = draw(arrays((*lead, *_space(draw, size, padding, dilation)), dtype))
    return Sample(
        (x,), {"kernel_size": size, "stride": stride, "padding": padding, "dilation": dilation, "rank": rank}
    )


def _pool(x: Array, kernel_size: Any, stride: Any, padding: Any, dilation: Any, rank: int) -> Array:
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    cut = windows(_padded(x, padding, lowest), kernel_size, stride, dilation)
    return cut.max(axis=tuple(range(-rank, 0)), initial=lowest)


def _standardize_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(1, least=1), dtype, "unit"))
    return Sample((x,), {"rank": draw(st.integers(1, x.ndim)), "eps": draw(st.sampled_from((1e-2, 1e-1)))})


def _standardize(x: Array, rank: int, eps: float) -> Array:
    axes = tuple(range(-rank, 0))
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + eps)


MODELS: dict[str, Case] = {
    "conv": Case(
        samples=_conv_samples, reference=_conv, ulps=16,
        scale=lambda x, weight, **attrs: _conv(np.abs(x), np.abs(weight), **attrs),
    ),
    "max_pool": Case(
        samples=_pool_samples, reference=_pool,
        dtypes=tuple(d for d in REAL if d is not float8_e4m3fn),  # it has no infinity to pad with
    ),
    "standardize": Case(
        samples=_standardize_samples, reference=_standardize, ulps=32, scale=lambda x, **_: 1.0,
    ),
}  # fmt: skip
