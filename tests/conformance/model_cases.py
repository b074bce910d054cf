"""What is drawn for the ops that models are made of: convolution, pooling, normalization, attention."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tensorbus.dtypes.definition import REAL, DType, float8_e4m3fn

from case import Case, Draw, Sample
from samples import arrays, shapes


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


def _weight_samples(draw: Draw, dtype: DType) -> Sample:
    rank, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    batch, depth, wide = draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    size, stride, dilation = (_per_axis(draw, rank, 1, 2 + (k == 0)) for k in range(3))
    padding = _per_axis(draw, rank, 0, 2)
    space = _space(draw, size, padding, dilation)
    places = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(space, size, stride, padding, dilation, strict=True)
    )
    x = draw(arrays((batch, groups * depth, *space), dtype, "unit"))
    grad = draw(arrays((batch, groups * wide, *places), dtype, "unit"))
    attrs = {"kernel": size, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return Sample((x, grad), attrs)


def _pool_samples(draw: Draw, dtype: DType) -> Sample:
    rank = draw(st.integers(1, 2))
    size, stride, dilation = (_per_axis(draw, rank, 1, 2 + (k == 0)) for k in range(3))
    padding = tuple(draw(st.integers(0, k // 2)) for k in size)
    lead = draw(shapes(1, 2))
    x = draw(arrays((*lead, *_space(draw, size, padding, dilation)), dtype))
    return Sample(
        (x,), {"kernel_size": size, "stride": stride, "padding": padding, "dilation": dilation, "rank": rank}
    )


def _standardize_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(1, least=1), dtype, "unit"))
    return Sample((x,), {"rank": draw(st.integers(1, x.ndim)), "eps": draw(st.sampled_from((1e-2, 1e-1)))})


def _transpose_samples(draw: Draw, dtype: DType) -> Sample:
    rank, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    batch, depth, wide = draw(st.integers(0, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    size, stride, dilation = (_per_axis(draw, rank, 1, 2 + (k == 0)) for k in range(3))
    padding = tuple(draw(st.integers(0, d * (k - 1) // 2)) for d, k in zip(dilation, size, strict=True))
    extra = tuple(draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True))
    x = draw(arrays((batch, groups * depth, *_per_axis(draw, rank, 1, 3)), dtype, "unit"))
    weight = draw(arrays((groups * depth, wide, *size), dtype, "unit"))
    return Sample(
        (x, weight),
        {
            "stride": stride, "padding": padding, "output_padding": extra, "dilation": dilation,
            "groups": groups,
        },
    )  # fmt: skip


def _attention_samples(draw: Draw, dtype: DType) -> Sample:
    lead = draw(shapes(0, 2, least=1))
    length, source, width, depth = draw(st.tuples(*(st.integers(1, 3),) * 4))
    query = draw(arrays((*lead, length, width), dtype, "unit"))
    key = draw(arrays((*lead, source, width), dtype, "unit"))
    value = draw(arrays((*lead, source, depth), dtype, "unit"))
    attrs = {"is_causal": draw(st.booleans()), "scale": draw(st.sampled_from((0.5, 1.0)))}
    return Sample((query, key, value), {**attrs, "enable_gqa": False})


def _attention_gradients_samples(draw: Draw, dtype: DType) -> Sample:
    call = _attention_samples(draw, dtype)
    query, _, value = call.operands
    grad, out = (draw(arrays((*query.shape[:-1], value.shape[-1]), dtype, "unit")) for _ in range(2))
    return Sample((grad, out, *call.operands), call.attrs)


def _logsumexp_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype, "moderate"))
    axes = draw(st.lists(st.integers(0, x.ndim - 1), unique=True).map(tuple) if x.ndim else st.just(()))
    return Sample((x,), {"axis": axes, "keepdims": draw(st.booleans())})


MODELS: dict[str, Case] = {
    "conv": Case(samples=_conv_samples),
    "conv_weight": Case(samples=_weight_samples),
    "max_pool": Case(samples=_pool_samples, dtypes=tuple(d for d in REAL if d is not float8_e4m3fn)),
    "standardize": Case(samples=_standardize_samples),
    "to_unit_rms": Case(samples=_standardize_samples),
    "conv_transpose": Case(samples=_transpose_samples),
    "scaled_dot_product_attention": Case(samples=_attention_samples),
    "attention_gradients": Case(samples=_attention_gradients_samples),
    "logsumexp": Case(samples=_logsumexp_samples),
}  # fmt: skip
