"""What is drawn for movement, creation, indexing and random bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType
from tensorbus_conformance.references.movement import windows

from case import Case, Draw, Sample
from ordering_cases import modes
from samples import Array, arrays, broadcastable, native, numbers, shapes


def _broadcast_samples(draw: Draw, dtype: DType) -> Sample:
    operand, other = draw(broadcastable(2))
    return Sample((draw(arrays(operand, dtype)),), {"shape": np.broadcast_shapes(operand, other)})


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


def _slice_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    return Sample((x,), _box(draw, x.shape))


def _update_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    box = _box(draw, x.shape)
    return Sample((x, draw(arrays(box["size"], dtype))), {"start": box["start"], "step": box["step"]})


def _pad_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(), dtype))
    low, high = (tuple(draw(st.integers(0, 3)) for _ in x.shape) for _ in range(2))
    value = draw(numbers(dtype))
    retained = np.asarray(value, np.float64).astype(native(dtype)) if dtype.is_floating else value
    return Sample((x,), {"low": low, "high": high, "value": float(retained) if dtype.is_floating else value})


def _concat_samples(draw: Draw, dtype: DType) -> Sample:
    shape = draw(shapes(1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    results = []
    for _ in range(draw(st.integers(1, 3))):
        one = list(shape)
        one[axis] = draw(st.integers(0, 3))
        results.append(draw(arrays(tuple(one), dtype)))
    return Sample(tuple(results), {"axis": axis}, listed=True)


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


def _fold_samples(draw: Draw, dtype: DType) -> Sample:
    shape, attrs = _windows_of(draw)
    rank = len(attrs.pop("size"))
    size = tuple(
        draw(st.integers(1, 1 + (n - 1) // d)) for n, d in zip(shape[-rank:], attrs["dilation"], strict=True)
    )
    operand = windows(np.zeros(shape), size, **attrs).shape
    return Sample((draw(arrays(operand, dtype, "small")),), {"shape": shape[-rank:], **attrs})


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
    return Sample((x, value, *indices), {"mode": draw(st.sampled_from(modes(dtype)))})


def _full_samples(draw: Draw, dtype: DType) -> Sample:
    return Sample((), {"dtype": dtype}, (draw(shapes()), draw(numbers(dtype))))


def _iota_samples(draw: Draw, dtype: DType) -> Sample:
    start, step = draw(numbers(dtype, "small")), draw(st.integers(-3, 3))
    length = draw(st.integers(0, 300 if dtype.is_integer else 12))
    return Sample((), {"dtype": dtype}, (length, start, step))


def _bits_samples(draw: Draw, dtype: DType) -> Sample:
    state = draw(arrays((2,), dt.uint64))
    state[1] = min(int(state[1]), (1 << 64) - 100)
    return Sample((state,), args=(draw(shapes()),))


def _diagonal_samples(draw: Draw, dtype: DType) -> Sample:
    x = draw(arrays(shapes(2), dtype))
    return Sample((x,), {"offset": draw(st.integers(-x.shape[-2] - 1, x.shape[-1] + 1))})


def _complex_samples(draw: Draw, dtype: DType) -> Sample:
    return Sample((draw(arrays(shapes(), dtype)),))


def _pair_samples(draw: Draw, dtype: DType) -> Sample:
    return Sample((draw(arrays((*draw(shapes()), 2), dtype)),))


MOVEMENT: dict[str, Case] = {
    "broadcast_to": Case(samples=_broadcast_samples),
    "reshape": Case(samples=_reshape_samples),
    "permute_dims": Case(samples=_permute_samples),
    "flip": Case(samples=_flip_samples),
    "slice": Case(samples=_slice_samples),
    "slice_update": Case(samples=_update_samples),
    "pad": Case(samples=_pad_samples),
    "concat": Case(samples=_concat_samples),
    "diagonal": Case(samples=_diagonal_samples),
    "view_as_real": Case(samples=_complex_samples),
    "view_as_complex": Case(samples=_pair_samples),
    "windows": Case(samples=_windows_samples),
    "fold": Case(samples=_fold_samples, dtypes=dt.NUMERIC),
    "gather": Case(samples=_gather_samples),
    "scatter": Case(samples=_scatter_samples),
    "full": Case(samples=_full_samples),
    "iota": Case(samples=_iota_samples),
    "random_bits": Case(samples=_bits_samples),
}  # fmt: skip
