"""References of movement, creation, indexing and random bits: the same bits at the right places."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType

from ..native import Array, native
from .reference import Reference


def _at(start: Any, size: Any, step: Any) -> tuple[Any, ...]:
    return np.ix_(*(b + s * np.arange(n) for b, n, s in zip(start, size, step, strict=True))) if start else ()


def _update(x: Array, value: Array, start: Any, step: Any) -> Array:
    out = x.copy()
    place: Any = _at(start, value.shape, step)
    out[place] = value
    return out


def _pad(x: Array, low: Any, high: Any, value: Any) -> Array:
    return np.pad(x, tuple(zip(low, high, strict=True)), constant_values=value) if x.ndim else x


def _window(*each: Any) -> list[slice]:
    return [slice(a * s, a * s + d * (k - 1) + 1, d) for a, s, d, k in zip(*each, strict=True)]


def windows(x: Array, size: Any, stride: Any, dilation: Any) -> Array:
    """Return all windows over the last axes, cut one by one."""
    rank = len(size)
    lead, space = x.shape[: x.ndim - rank], x.shape[x.ndim - rank :]
    each = zip(space, size, stride, dilation, strict=True)
    counts = tuple((n - d * (k - 1) - 1) // s + 1 for n, k, s, d in each)
    out = np.zeros((*lead, *counts, *size), x.dtype)
    for at in product(*map(range, counts)):
        cut: Any = (..., *_window(at, stride, dilation, size))
        place: Any = (..., *at, *(slice(None),) * rank)
        out[place] = x[cut]
    return out


def fold(x: Array, shape: Any, stride: Any, dilation: Any) -> Array:
    """Add all windows up where they came from, one by one."""
    rank = len(shape)
    lead, counts, size = x.shape[: -2 * rank], x.shape[-2 * rank : -rank], x.shape[-rank:]
    out = np.zeros((*lead, *shape), x.dtype)
    for at in product(*map(range, counts)):
        cut: Any = (..., *_window(at, stride, dilation, size))
        place: Any = (..., *at, *(slice(None),) * rank)
        out[cut] += x[place]
    return out


def scatter(x: Array, value: Array, *indices: Array, mode: str) -> Array:
    """Store or combine element by element."""
    out = x.copy()
    for at in np.ndindex(*indices[0].shape):
        place = tuple(int(i[at]) for i in indices)
        out[place] = COMBINE[mode](out[place], value[at])
    return out


COMBINE: dict[str, Any] = {
    "set": lambda _, y: y, "add": np.add, "multiply": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def iota(length: int, start: Any, step: Any, dtype: DType) -> Array:
    """Count in Python's integers, wrapped; or in float64."""
    if not dtype.is_integer:
        return np.array([start + k * step for k in range(length)], np.float64)
    low, high = dt.integer_range(dtype)
    return np.array([(start + k * step - low) % (high - low + 1) + low for k in range(length)], native(dtype))


def philox(key: int, counter: int) -> list[int]:
    """Return the four words of one block of Philox4x32-10 (Salmon et al. 2011), in Python integers."""
    x = [counter >> 32 * k & 0xFFFFFFFF for k in range(4)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        a, b = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
        x = [b >> 32 ^ x[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ x[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return x


def _random_bits(state: Array, shape: Any) -> Array:
    size = prod(shape)
    words = [w for block in range(-(-size // 4)) for w in philox(int(state[0]), int(state[1]) + block)]
    return np.array(words[:size], np.uint32).reshape(shape)


def _sums(x: Array, **_: Any) -> Any:
    return np.sum(np.abs(np.where(np.isfinite(x), x, 0))) if x.dtype.kind in "fc" else 0.0


def _numbers(x: Array) -> Array:
    numbers: Array = np.ascontiguousarray(x).view(np.result_type(x.dtype, np.complex64))[..., 0]
    return numbers


REFERENCES: dict[str, Reference] = {
    "broadcast_to": Reference(function=np.broadcast_to, exact=True),
    "reshape": Reference(function=lambda x, shape: x.reshape(shape), exact=True),
    "permute_dims": Reference(function=np.transpose, exact=True),
    "flip": Reference(function=np.flip, exact=True),
    "slice": Reference(function=lambda x, **box: x[_at(**box)], exact=True),
    "diagonal": Reference(function=lambda x, offset: np.diagonal(x, offset, -2, -1), exact=True),
    "view_as_real": Reference(function=lambda x: np.stack([x.real, x.imag], -1), exact=True),
    "view_as_complex": Reference(function=_numbers, exact=True),
    "slice_update": Reference(function=_update, exact=True),
    "pad": Reference(function=_pad, exact=True),
    "concat": Reference(function=lambda *xs, axis: np.concatenate(xs, axis=axis), exact=True),
    "windows": Reference(function=windows, exact=True),
    "fold": Reference(function=fold, ulps=8, scale=_sums),
    "gather": Reference(function=lambda x, *indices, **_: x[indices], exact=True),
    "scatter": Reference(function=scatter, ulps=8, scale=lambda x, value, *_, **__: _sums(x) + _sums(value)),
    "full": Reference(function=lambda shape, value, dtype: np.full(shape, value, native(dtype)), exact=True),
    "iota": Reference(function=iota, ulps=1),
    "random_bits": Reference(function=_random_bits, exact=True),
}  # fmt: skip
