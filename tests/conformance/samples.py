"""Arrays that hypothesis draws: shapes with and without elements, special values, every dtype, any layout."""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np
import tensorbus as tb
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorbus import Tensor
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType

Array = np.ndarray[Any, Any]
Kind = Literal["any", "finite", "moderate", "positive", "unit", "chance", "near", "small"]
"""Which numbers a sample holds: also NaN and infinities; only finite ones; at most 1000 in size; more than 0
and at most 1000; within [-1, 1]; within [0, 1]; within [-8, 8], as all complex ones are; whole
numbers from -4 to 4."""

SMALL_FLOATS = {
    dt.bfloat16: ml_dtypes.bfloat16,
    dt.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    dt.float8_e5m2: ml_dtypes.float8_e5m2,
}  # fmt: skip
_PLAIN = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 0.1, 7.5, -2.5, 100.0, -1e-3)
_SPECIAL = (float("nan"), float("inf"), float("-inf"))


def native(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's name of a dtype."""
    return np.dtype(SMALL_FLOATS.get(dtype, dtype.name))


def shapes(low: int = 0, high: int = 3, least: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw shapes of ``low`` to ``high`` axes, each of ``least`` to 4 elements."""
    return hnp.array_shapes(min_dims=low, max_dims=high, min_side=least, max_side=4) if high else st.just(())


def broadcastable(count: int) -> st.SearchStrategy[tuple[tuple[int, ...], ...]]:
    """Draw ``count`` shapes that broadcast together; some without elements, some without axes."""
    shapes = hnp.mutually_broadcastable_shapes(num_shapes=count, min_side=0, max_side=4, max_dims=3)
    return shapes.map(lambda s: s.input_shapes)


def numbers(dtype: DType, kind: Kind = "any") -> st.SearchStrategy[Any]:
    """Draw Python scalars of a dtype."""
    if dtype is dt.bool_:
        return st.booleans()
    if dtype.is_integer:
        return _integers(dtype, kind)
    if dtype.is_complex:
        part = _floats(dt.real_of(dtype), kind if kind in ("unit", "small") else "near")
        return st.builds(complex, part, part)
    return _floats(dtype, kind)


def _integers(dtype: DType, kind: Kind) -> st.SearchStrategy[int]:
    low, high = dt.integer_range(dtype)
    if kind == "small":
        return st.integers(max(low, -4), 4)
    if kind == "positive":
        return st.integers(1, min(high, 1000))
    edges = st.sampled_from(
        [v for v in (0, 1, 2, 3, 7, -1, -2, low, low + 1, high - 1, high) if low <= v <= high]
    )
    return edges | st.integers(low, high)


def _floats(dtype: DType, kind: Kind) -> st.SearchStrategy[float]:
    if kind == "small":
        return st.integers(-4, 4).map(float)
    width: Any = {8: 64, 4: 32}.get(dtype.itemsize, 16)
    top = float(ml_dtypes.finfo(native(dtype)).max)
    bound = {"unit": 1.0, "chance": 1.0, "near": 8.0, "moderate": 1000.0, "positive": 1000.0}.get(kind, top)
    bound = min(bound, top, 65504.0 if width == 16 else top)
    low = {"positive": 2.0**-6, "chance": 0.0}.get(kind, -bound)
    drawn = st.floats(low, bound, width=width, allow_subnormal=False)
    plain = [v for v in _PLAIN if low <= v <= bound]
    return st.sampled_from([*plain, *_SPECIAL, top, -top] if kind == "any" else plain) | drawn


def arrays(
    shape: tuple[int, ...] | st.SearchStrategy[tuple[int, ...]], dtype: DType, kind: Kind = "any"
) -> st.SearchStrategy[Array]:
    """Draw arrays of NumPy's equal of ``dtype``."""
    drawn = np.dtype(np.float64) if dtype in SMALL_FLOATS or dtype is dt.float16 else native(dtype)
    result = hnp.arrays(drawn, shape, elements=numbers(dtype, kind), fill=st.nothing())
    return result.map(lambda a: a.astype(native(dtype)))


Layout = Literal["packed", "flipped", "permuted", "strided"]
LAYOUTS: tuple[Layout, ...] = ("packed", "flipped", "permuted", "strided")


def place(array: Array, device: str, layout: Layout = "packed") -> Tensor:
    """Return the array as a tensor, made in one of several ways that leave its elements out of C order."""
    if layout == "packed" or not array.ndim:
        return tb.asarray(array, device=device)
    if layout == "flipped":
        return tb.flip(tb.asarray(np.flip(array).copy(), device=device))
    if layout == "permuted":
        return tb.permute_dims(tb.asarray(array.T.copy(), device=device), tuple(range(array.ndim))[::-1])
    spread = np.ones((*array.shape[:-1], 2 * array.shape[-1] + 1), array.dtype)
    spread[..., 1::2] = array
    return tb.asarray(spread, device=device)[..., 1::2]
