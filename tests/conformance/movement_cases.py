"""References of movement, creation, indexing and random bits: the same bits at the right places."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import tensorbus as tb
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorbus import dtypes as dt
from tensorbus.dtypes import DType

from case import Case, Draw, Sample
from samples import Array, arrays, broadcastable, native, numbers, shapes


def _broadcast_samples(draw: Draw, dtype: DType) -> Sample:
    given, other = draw(broadcastable(2))
    return Sample((draw(arrays(given, dtype)),), {"shape": np.broadcast_shapes(given, other)})


def _reshape_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    ways = [(x.size,), (-1,), x.shape[::-1], (1, *x.shape, 1), *([()] if x.size == 1 else [])]
    return Sample((x,), {"shape": draw(st.sampled_from(ways if x.size else [*ways, (3, 0, 2)]))})


def _permute_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    order = draw(st.permutations(range(x.ndim)))
    return Sample((x,), {"axes": tuple(a - x.ndim if draw(st.booleans()) else a for a in order)})


def _flip_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    some = st.lists(st.integers(0, x.ndim - 1), unique=True).map(tuple) if x.ndim else st.just(())
    return Sample((x,), {"axis": draw(st.none() | some)})


def _box(draw: Draw, shape: tuple[int, ...]) -> dict[str, Any]:
    places = [range(n)[draw(st.slices(n))] for n in shape]
    return {
        "start": tuple(p.start if p else 0 for p in places),
        "size": tuple(map(len, places)),
        "step": tuple(p.step if p else 1 for p in places),
    }


def _at(start: Any, size: Any, step: Any) -> tuple[Any, ...]:
    return np.ix_(*(b + s * np.arange(n) for b, n, s in zip(start, size, step, strict=True))) if start else ()


def _slice_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    return Sample((x,), _box(draw, x.shape))


def _update_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    box = _box(draw, x.shape)
    return Sample((x, draw(arrays(box["size"], dtype))), {"start": box["start"], "step": box["step"]})


def _update(x: Array, value: Array, start: Any, step: Any) -> Array:
    out = x.copy()
    place: Any = _at(start, value.shape, step)
    out[place] = value
    return out


def _pad_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    low, high = (tuple(draw(st.integers(0, 3)) for _ in x.shape) for _ in range(2))
    value = draw(numbers(dtype))
    kept = np.asarray(value, np.float64).astype(native(dtype)) if dtype.is_floating else value
    return Sample((x,), {"low": low, "high": high, "value": float(kept) if dtype.is_floating else value})


def _pad(x: Array, low: Any, high: Any, value: Any) -> Array:
    return np.pad(x, tuple(zip(low, high, strict=True)), constant_values=value) if x.ndim else x


def _concat_samples(draw: Draw, dtype: DType) -> Sample:
    shape = draw(shapes(1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        one = list(shape)
        one[axis] = draw(st.integers(0, 3))
        found.append(draw(arrays(tuple(one), dtype)))
    return Sample(tuple(found), {"axis": axis})


def _windows_of(draw: Draw) -> tuple[tuple[int, ...], dict[str, Any]]:
    rank = draw(st.integers(1, 2))
    size, stride, dilation, more = (
        tuple(draw(st.integers(1 if k < 3 else 0, 2)) for _ in range(rank)) for k in range(4)
    )
    space = tuple(d * (k - 1) + 1 + m for k, d, m in zip(size, dilation, more, strict=True))
    return (*draw(shapes(0, 2)), *space), {"size": size, "stride": stride, "dilation": dilation}


def _windows_samples(draw: Draw, dtype: DType) -> Sample:
    shape, attrs = _windows_of(draw)
    return Sample((draw(arrays(shape, dtype)),), attrs)


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


def _fold_samples(draw: Draw, dtype: DType) -> Sample:
    shape, attrs = _windows_of(draw)
    rank = len(attrs.pop("size"))
    size = tuple(
        draw(st.integers(1, 1 + (n - 1) // d)) for n, d in zip(shape[-rank:], attrs["dilation"], strict=True)
    )
    given = windows(np.zeros(shape), size, **attrs).shape
    return Sample((draw(arrays(given, dtype, "small")),), {"shape": shape[-rank:], **attrs})


def fold(x: Array, shape: Any, stride: Any, dilation: Any) -> Array:
    """Add all windows up where they came from, one by one."""
    rank = len(shape)
    lead, counts, size = x.shape[: -2 * rank], x.shape[-2 * rank : -rank], x.shape[-rank:]
    out = np.zeros((*lead, *shape), x.dtype)
    for at in product(*map(range, counts)):
        cut: Any = (..., *_window(at, stride, dilation, size))
        out[cut] += x[(..., *at, *(slice(None),) * rank)]
    return out


def _gather_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(1, least=1), dtype))
    return Sample((x, *_indices(draw, x.shape)))


def _indices(draw: Draw, shape: tuple[int, ...]) -> list[Array]:
    common = draw(shapes(0, 2))
    depth = draw(st.integers(1, len(shape)))
    return [draw(hnp.arrays(np.int64, common, elements=st.integers(0, n - 1))) for n in shape[:depth]]


def _scatter_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(1, least=1), dtype, "small"))
    indices = _indices(draw, x.shape)
    value = draw(arrays((*indices[0].shape, *x.shape[len(indices) :]), dtype, "small"))
    mode = "set" if dtype is dt.bool_ else draw(st.sampled_from(("set", "add")))
    return Sample((x, value, *indices), {"mode": mode})


def _scatter(x: Array, value: Array, *indices: Array, mode: str) -> Array:
    out = x.copy()
    for at in np.ndindex(*indices[0].shape):
        place = tuple(int(i[at]) for i in indices)
        out[place] = value[at] if mode == "set" else out[place] + value[at]
    return out


def _full_samples(draw: Draw, dtype: DType) -> Sample:
    return Sample((), {"shape": draw(shapes()), "fill_value": draw(numbers(dtype)), "dtype": dtype})


def _full(shape: Any, fill_value: Any, dtype: DType) -> Array:
    return np.full(shape, fill_value, native(dtype))


def _iota_samples(draw: Draw, dtype: DType) -> Sample:
    start, step = draw(numbers(dtype, "small")), draw(st.integers(-3, 3))
    return Sample(
        (),
        {
            "length": draw(st.integers(0, 300 if dtype.is_integer else 12)),
            "start": start,
            "step": step,
            "dtype": dtype,
        },
    )


def _iota(length: int, start: Any, step: Any, dtype: DType) -> Array:
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


def _bits_samples(draw: Draw, dtype: DType) -> Sample:
    state = draw(arrays((2,), dt.uint64))
    state[1] = min(int(state[1]), (1 << 64) - 100)
    return Sample((state,), {"shape": draw(shapes())})


def _random_bits(state: Array, shape: Any) -> Array:
    size = prod(shape)
    words = [w for block in range(-(-size // 4)) for w in philox(int(state[0]), int(state[1]) + block)]
    return np.array(words[:size], np.uint32).reshape(shape)


def _one(draw: Draw, dtype: DType) -> Sample:
    return Sample((draw(arrays(shapes(), dtype)),))


MOVEMENT: dict[str, Case] = {
    "broadcast_to": Case(samples=_broadcast_samples, reference=np.broadcast_to, exact=True),
    "reshape": Case(samples=_reshape_samples, reference=lambda x, shape: x.reshape(shape), exact=True),
    "permute_dims": Case(samples=_permute_samples, reference=np.transpose, exact=True),
    "flip": Case(samples=_flip_samples, reference=np.flip, exact=True),
    "slice": Case(samples=_slice_samples, reference=lambda x, **box: x[_at(**box)], exact=True),
    "slice_update": Case(samples=_update_samples, reference=_update, exact=True),
    "pad": Case(
        samples=_pad_samples, exact=True,
        reference=_pad,
    ),
    "concat": Case(
        samples=_concat_samples, exact=True, reference=lambda *xs, axis: np.concatenate(xs, axis=axis),
        call=lambda *xs, axis: tb.concat(xs, axis=axis),
    ),
    "windows": Case(samples=_windows_samples, reference=windows, exact=True),
    "fold": Case(samples=_fold_samples, reference=fold, dtypes=dt.NUMERIC, ulps=8, scale=lambda x, **_: 36.0),
    "gather": Case(samples=_gather_samples, reference=lambda x, *indices: x[indices], exact=True),
    "scatter": Case(samples=_scatter_samples, reference=_scatter, ulps=8, scale=lambda *_, **__: 64.0),
    "full": Case(
        samples=_full_samples, reference=_full, exact=True,
        call=lambda shape, **attrs: tb.full(shape, **attrs),
    ),
    "iota": Case(
        samples=_iota_samples, reference=_iota, ulps=1, call=lambda length, **attrs: tb.iota(length, **attrs),
    ),
    "random_bits": Case(
        samples=_bits_samples, reference=_random_bits, result=lambda _: dt.uint32, exact=True,
        call=lambda state, shape: tb.random_bits(state, shape),
    ),
    "transfer": Case(
        samples=_one, reference=lambda x: x, exact=True, call=lambda x: x.to("cpu").to(x.device)
    ),
}  # fmt: skip
