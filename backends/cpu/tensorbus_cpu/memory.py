"""Bytes and foreign arrays in and out of ``numpy.ndarray`` values."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np
from tensorbus.backend_api import DType, DtypeError, OutOfMemoryError, dtypes

_SMALL: Final = {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    dtypes.float8_e5m2: ml_dtypes.float8_e5m2,
}
DTYPES: Final[dict[DType, np.dtype[Any]]] = {d: np.dtype(_SMALL.get(d, d.name)) for d in dtypes.ALL}
"""How NumPy names each dtype; the small floats are those of ml_dtypes."""
NAMES: Final = {native: d for d, native in DTYPES.items()}


def from_bytes(data: memoryview, shape: tuple[int, ...], dtype: DType) -> Any:
    """Return a new array with a copy of C-ordered bytes."""
    try:
        out = np.empty(shape, DTYPES[dtype])
    except MemoryError as error:
        raise OutOfMemoryError(
            f"cpu: no memory for {dtype}{list(shape)}, {prod(shape) * dtype.itemsize} bytes; free"
            " some tensors."
        ) from error
    out.reshape(-1).view(np.uint8)[:] = np.frombuffer(data, np.uint8)
    return out


def to_bytes(value: Any) -> memoryview:
    """Return the elements as C-ordered bytes."""
    packed: Any = np.ascontiguousarray(value)
    return memoryview(packed.reshape(-1).view(np.uint8))


def share(array: Any, dtype: DType, copy: bool) -> Any:
    """Return ``array`` as a value: native byte order, and a copy unless told otherwise."""
    given = np.asarray(array)
    native = DTYPES[dtype]
    if given.dtype != native:
        if not copy:
            raise ValueError(
                f"asarray: an array of {given.dtype} in foreign byte order cannot be shared; copy it."
            )
        return given.astype(native)
    return given.copy(order="C") if copy else given


def from_producer(producer: Any, copy: bool | None) -> tuple[Any, DType]:
    """Return the array that a DLPack producer exports, and its dtype."""
    array = np.from_dlpack(producer, copy=copy)
    if array.dtype not in NAMES:
        raise DtypeError(f"from_dlpack: no tensor dtype is {array.dtype}.")
    return array, NAMES[array.dtype]
