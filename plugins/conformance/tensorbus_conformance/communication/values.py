"""Arrays that ranks bring, and what is right of their combinations, by NumPy: the same on each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final
from zlib import crc32

import numpy as np
import tensorbus as tb
from tensorbus import dtypes as dt
from tensorbus.backend_api import from_bytes, to_bytes
from tensorbus.dtypes import DType

from ..native import Array, native

FILLS: Final = ("small", "bits", "rounding", "special")
"""Numbers whose combinations are exact; any bits; numbers whose sums round; infinities, NaNs and zeros."""
_COMBINE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip


def array(fill: str, dtype: DType, shape: Sequence[int], seed: str) -> Array:
    """Return an array of ``dtype``, drawn from ``seed``."""
    rng = np.random.default_rng(crc32(seed.encode()))
    shape = tuple(shape)
    if dtype is dt.bool_:
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if fill == "bits" and dtype.is_integer:
        low, high = dt.integer_range(dtype)
        return np.asarray(rng.integers(low, high, shape, native(dtype), endpoint=True))
    if dtype.is_integer:
        return np.asarray(rng.integers(1, 4, shape)).astype(native(dtype))
    drawn: Any
    if fill == "rounding":
        drawn = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    elif fill == "special":
        choices = np.array([1.0, 2.0, 0.0, -0.0, np.inf, -np.inf, np.nan])
        drawn = rng.choice(choices[:4] if "float8" in dtype.name else choices, shape) + 0j
    else:
        drawn = rng.choice([1.0, 2.0], shape) + 1j * rng.integers(0, 2, shape)  # products stay exact
    with np.errstate(all="ignore"):
        return np.asarray(drawn if dtype.is_complex else drawn.real).astype(native(dtype))


def combined(xs: Sequence[Array], reduction: str, dtype: DType) -> Array:
    """Return the combination of arrays: integers in their dtype, others in float64 or complex128."""
    wide: Any = xs[0].dtype if dtype.is_integer or dtype is dt.bool_ else np.complex128
    if dtype.is_floating:
        wide = np.float64
    with np.errstate(all="ignore"):
        return np.asarray(reduce(_COMBINE[reduction], [np.asarray(x).astype(wide) for x in xs]), wide)


def error_bound(xs: Sequence[Array], dtype: DType) -> Any:
    """Return how far a sum in ``dtype`` may be from the exact one, whatever the order of its additions."""
    if not (dtype.is_floating or dtype.is_complex):
        return 0
    return (
        len(xs)
        * tb.finfo(dtype).eps
        * reduce(np.add, [np.abs(np.asarray(x).astype(np.complex128)) for x in xs])
    )


def tensor(x: Array, dtype: DType, device: str | tb.Device, *, strided: bool = False) -> tb.Tensor:
    """Return a tensor with the elements of an array; ``strided``: as every second row of a larger one."""
    if strided and x.ndim and x.shape[0]:
        return tensor(np.repeat(x, 2, axis=0), dtype, device)[::2]
    data = memoryview(bytearray(np.ascontiguousarray(x).tobytes()))
    where = tb.Device(device) if isinstance(device, str) else device
    return from_bytes(data, tuple(x.shape), dtype, where)


def content(x: tb.Tensor) -> Array:
    """Return a tensor's elements as an array of its dtype."""
    return np.frombuffer(bytes(to_bytes(x)), native(x.dtype)).reshape(x.shape)


def difference(result: Array, right: Array, bound: Any = 0) -> str:
    """Return where ``result`` is not ``right`` within ``bound``; "" where it is everywhere."""
    wide: Any = np.complex128 if np.iscomplexobj(right) else np.float64
    if right.dtype.kind in "iub":
        wrong = np.asarray(result != right)
        got: Any = result
    else:
        got = result.astype(wide)
        with np.errstate(all="ignore"):
            near = np.abs(got - right) <= bound
        wrong = ~((got == right) | near | (np.isnan(got) & np.isnan(right)))
    if not wrong.any():
        return ""
    place = tuple(int(k) for k in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements are wrong; at {list(place)} it is {got[place]}, right"
        f" is {right[place]}"
    )
