"""References of the ops that models are made of: convolution, pooling, normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..native import Array
from .movement import windows
from .reference import Reference


def padded(x: Array, padding: Any, value: Any = 0) -> Array:
    """Return ``x`` with ``value`` around its last axes."""
    edges = ((0, 0),) * (x.ndim - len(padding)) + tuple((p, p) for p in padding)
    return np.pad(x, edges, constant_values=value)


def conv(x: Array, weight: Array, stride: Any, padding: Any, dilation: Any, groups: int) -> Array:
    """Multiply every window with every kernel, and sum."""
    size = weight.shape[2:]
    rank = len(size)
    cut = windows(padded(x, padding), size, stride, dilation)
    batch, channels, *rest = cut.shape
    grouped = cut.reshape(batch, groups, 1, channels // groups, *rest)
    rows = weight.reshape(1, groups, weight.shape[0] // groups, weight.shape[1], *(1,) * rank, *size)
    summed = (grouped * rows).sum(axis=(3, *range(4 + rank, 4 + 2 * rank)), dtype=x.dtype)
    return summed.reshape(batch, weight.shape[0], *rest[:rank])


def _pool(x: Array, size: Any, stride: Any, padding: Any, dilation: Any) -> Array:
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    cut = windows(padded(x, padding, lowest), size, stride, dilation)
    return cut.max(axis=tuple(range(-len(size), 0)), initial=lowest)


def _standardize(x: Array, rank: int, eps: float) -> Array:
    axes = tuple(range(-rank, 0))
    centred = x - x.mean(axis=axes, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + eps)


def _to_unit_rms(x: Array, rank: int, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=tuple(range(-rank, 0)), keepdims=True) + eps)


def _conv_transpose(
    x: Array, weight: Array, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int
) -> Array:
    """Every element of the input adds the weight, times itself, to a window."""
    space, size = x.shape[2:], weight.shape[2:]
    whole = [
        (n - 1) * s + d * (k - 1) + 1 + o
        for n, s, d, k, o in zip(space, stride, dilation, size, output_padding, strict=True)
    ]
    depth = weight.shape[1]
    out = np.zeros((x.shape[0], depth * groups, *whole), x.dtype)
    for group in range(groups):
        rows = slice(group * x.shape[1] // groups, (group + 1) * x.shape[1] // groups)
        for at in np.ndindex(*space):
            for tap in np.ndindex(*size):
                place = tuple(a * s + t * d for a, s, t, d in zip(at, stride, tap, dilation, strict=True))
                added = x[(slice(None), rows, *at)] @ weight[(rows, slice(None), *tap)]
                out[(slice(None), slice(group * depth, (group + 1) * depth), *place)] += added
    ends = tuple(slice(p, n - p) for p, n in zip(padding, whole, strict=True))
    return out[(slice(None), slice(None), *ends)]


def _conv_weight(
    x: Array, grad: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """Multiply every window with the gradient at its place, and sum."""
    rank = len(kernel)
    cut = windows(padded(x, padding), kernel, stride, dilation)
    batch, channels, *rest = cut.shape
    grouped = cut.reshape(batch, groups, 1, channels // groups, *rest)
    rows = grad.reshape(batch, groups, grad.shape[1] // groups, 1, *grad.shape[2:], *(1,) * rank)
    summed = (grouped * rows).sum(axis=(0, *range(4, 4 + rank)), dtype=x.dtype)
    return summed.reshape(grad.shape[1], channels // groups, *kernel)


def _shares(query: Array, key: Array, mask: tuple[Array, ...], is_causal: bool, scale: float) -> Array:
    """Return the softmax of the scores; zeros for a query without keys."""
    scores = query @ np.swapaxes(key, -1, -2) * scale
    if is_causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    for m in mask:
        scores = np.where(m, scores, -np.inf) if m.dtype.kind == "b" else scores + m
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = powers.sum(-1, keepdims=True)
    return np.asarray(powers / np.where(total == 0, 1, total))


def _attention(
    query: Array, key: Array, value: Array, *mask: Array, is_causal: bool, scale: float,
    enable_gqa: bool = False,
) -> Array:  # fmt: skip
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, -3), np.repeat(value, times, -3)
    return np.asarray(_shares(query, key, mask, is_causal, scale) @ value)


def _folded(x: Array, shape: tuple[int, ...]) -> Array:
    """Sum over what was broadcast from ``shape``, or over heads that were repeated."""
    if len(shape) > 2 and shape[-3] not in (1, x.shape[-3]):
        x = x.reshape(*x.shape[:-3], shape[-3], -1, *x.shape[-2:]).sum(-3)
    x = x.sum(tuple(range(x.ndim - len(shape))))
    return x.sum(tuple(k for k, n in enumerate(shape) if n != x.shape[k]), keepdims=True)


def _attention_gradients(
    grad: Array, out: Array, query: Array, key: Array, value: Array, *mask: Array, is_causal: bool,
    scale: float, enable_gqa: bool,
) -> tuple[Array, ...]:  # fmt: skip
    times = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    k, v = (np.repeat(x, times, -3) if enable_gqa else x for x in (key, value))
    shares = _shares(query, k, mask, is_causal, scale)
    slopes = shares * (grad @ np.swapaxes(v, -1, -2) - (grad * out).sum(-1, keepdims=True)) * scale
    return (
        _folded(slopes @ k, query.shape),
        _folded(np.swapaxes(slopes, -1, -2) @ query, key.shape),
        _folded(np.swapaxes(shares, -1, -2) @ grad, value.shape),
    )


def _steepest(grad: Array, out: Array, query: Array, key: Array, value: Array, *_: Array, **__: Any) -> Any:
    g, *rest = (np.abs(x).max(initial=1.0) for x in (grad, out, query, key, value))
    return g * max(rest[0], rest[3]) * max(rest[1], rest[2])


def _states(query: Array, key: Array, extra: tuple[Array, ...], attrs: dict[str, Any]) -> Array:
    """Return which scores count, by the states of blocks; of a masked program, which is causal, in some."""
    causal = np.tri(query.shape[2], key.shape[2], dtype=bool)
    own = causal if attrs["program"].masked else np.ones_like(causal)
    if attrs["block_size"] is None:
        return own
    blocks = extra[0].repeat(attrs["block_size"][0], 2).repeat(attrs["block_size"][1], 3)
    blocks = blocks[:, :, : query.shape[2], : key.shape[2]]
    return np.asarray((blocks == 2) | ((blocks == 1) & own))


def _flex_scores(query: Array, key: Array, extra: tuple[Array, ...], attrs: dict[str, Any]) -> Array:
    scores = query @ np.swapaxes(key.repeat(query.shape[1] // key.shape[1], 1), -1, -2) * attrs["scale"]
    return np.where(_states(query, key, extra, attrs), scores, -np.inf)


def _flex(query: Array, key: Array, value: Array, *extra: Array, **attrs: Any) -> tuple[Array, Array]:
    scores = _flex_scores(query, key, extra, attrs)
    powers = np.exp(scores)
    total = powers.sum(-1)
    with np.errstate(divide="ignore"):
        logs = np.log(total)
    shares = powers / np.where(total == 0, 1, total)[..., None]
    return np.asarray(shares @ value.repeat(query.shape[1] // key.shape[1], 1)), logs


def _flex_gradients(
    grad: Array, grad_lse: Array, out: Array, lse: Array, query: Array, key: Array, value: Array,
    *extra: Array, **attrs: Any,
) -> tuple[Array, ...]:  # fmt: skip
    times = query.shape[1] // key.shape[1]
    k, v = key.repeat(times, 1), value.repeat(times, 1)
    shares = np.exp(_flex_scores(query, key, extra, attrs) - lse[..., None])
    behind = (grad * out).sum(-1) - grad_lse
    slopes = shares * (grad @ np.swapaxes(v, -1, -2) - behind[..., None]) * attrs["scale"]
    return (
        _folded(slopes @ k, query.shape),
        _folded(np.swapaxes(slopes, -1, -2) @ query, key.shape),
        _folded(np.swapaxes(shares, -1, -2) @ grad, value.shape),
    )


def _flex_captured_gradients(
    grad: Array, grad_lse: Array, out: Array, lse: Array, query: Array, key: Array, value: Array,
    bias: Array, **attrs: Any,
) -> tuple[Array]:  # fmt: skip
    """The program adds a bias of each head and key."""
    scores = _flex_scores(query, key, (), attrs) + bias[:, None]
    behind = (grad * out).sum(-1) - grad_lse
    slopes = np.exp(scores - lse[..., None]) * (grad @ np.swapaxes(value, -1, -2) - behind[..., None])
    return (slopes.sum((0, 2)),)


REFERENCES: dict[str, Reference] = {
    "conv": Reference(
        function=conv, ulps=16,
        scale=lambda x, weight, **attrs: conv(np.abs(x).astype(float), np.abs(weight).astype(float), **attrs),
    ),
    "conv_transpose": Reference(
        function=_conv_transpose, ulps=16,
        scale=lambda x, weight, **attrs: _conv_transpose(np.abs(x), np.abs(weight), **attrs),
    ),
    "conv_weight": Reference(
        function=_conv_weight, ulps=16,
        scale=lambda x, grad, **attrs: _conv_weight(
            np.abs(x).astype(float), np.abs(grad).astype(float), **attrs
        ),
    ),
    "scaled_dot_product_attention": Reference(
        function=_attention, ulps=32, scale=lambda q, k, v, *_, **__: np.abs(v).max(initial=1.0)
    ),
    "attention_gradients": Reference(function=_attention_gradients, ulps=32, scale=_steepest),
    "flex_attention": Reference(
        function=_flex, ulps=64, scale=lambda q, k, v, *_, **__: 4 + np.abs(v).max(initial=1.0)
    ),
    "flex_attention_captured_gradients": Reference(
        function=_flex_captured_gradients, ulps=64, scale=lambda *_, **__: 32.0
    ),
    "flex_attention_gradients": Reference(
        function=_flex_gradients, ulps=64, scale=lambda *_, **__: 16.0
    ),
    "max_pool": Reference(function=_pool),
    "to_unit_rms": Reference(function=_to_unit_rms, ulps=16),
    "standardize": Reference(function=_standardize, ulps=32, scale=lambda x, **_: 1.0),
}  # fmt: skip
