"""Values as CuPy's arrays, over the same memory: for its libraries, and for exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import cupy
import numpy as np
from tensorbus.backend_api import DType, DtypeError, StridedArray
from tensorbus.backend_api import dtypes as dt

if TYPE_CHECKING:
    from .device import Unit

NAMES: Final[dict[str, DType]] = {
    "bool": dt.bool_, **{d.name: d for d in (
        dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.float16,
        dt.float32, dt.float64, dt.complex64, dt.complex128,
    )}
}  # fmt: skip
"""The dtypes that CuPy's arrays have, by their names there. bfloat16 is none."""
ALIGNED: Final = 16


def as_cupy(unit: Unit, value: StridedArray) -> Any:
    """Return a ``cupy.ndarray`` over the memory of ``value``. Raises ``DtypeError`` for bfloat16."""
    name = "bool" if value.dtype is dt.bool_ else value.dtype.name
    if name not in NAMES:
        raise DtypeError(f"CuPy has no arrays of {value.dtype}; cast the tensor to float32 first.")
    kind = np.dtype(name)
    with unit.current():
        if value.size == 0:
            return cupy.empty(value.shape, kind)
        block, stream = value.buffer, unit.stream()
        if block.stream is not stream:
            block.used_by(stream)
        return cupy.ndarray(
            value.shape, kind, _Held.over(block) + value.offset * kind.itemsize,
            strides=tuple(s * kind.itemsize for s in value.strides),
        )  # fmt: skip


class _Held:
    """The owner of a block's memory as CuPy sees it: arrays keep it, and so the block, alive."""

    def __init__(self, block: Any) -> None:
        self.block = block

    @classmethod
    def over(cls, block: Any) -> Any:
        """Return CuPy's pointer to a block."""
        owner = cls(block)
        memory = cupy.cuda.UnownedMemory(block.ptr, block.nbytes, owner, block.pool.unit.index)
        return cupy.cuda.MemoryPointer(memory, 0)


def from_cupy(unit: Unit, array: Any) -> StridedArray:
    """Return a value over the memory of a ``cupy.ndarray``."""
    dtype = NAMES.get(array.dtype.name)
    if dtype is None:
        raise DtypeError(f"no dtype of the cuda device is {array.dtype}.")
    if array.size == 0:
        return StridedArray.contiguous(None, array.shape, dtype)
    strides = tuple(s // array.itemsize for s in array.strides)
    block = unit.pool.adopt(array)
    # Kernels move many bytes at once from where a block begins; an offset they look at.
    before = block.ptr % ALIGNED
    block.ptr -= before
    return StridedArray(block, array.shape, strides, before // array.itemsize, dtype)


def export(unit: Unit, value: StridedArray, *, stream: Any = None, copy: bool | None = None, **_: Any) -> Any:
    """Return a DLPack capsule: over the value's own memory for ``copy=False``, else over a copy.

    Tensors never alias, and a consumer cannot be told that it may not write.
    """
    try:
        array = as_cupy(unit, value)
    except DtypeError as error:
        raise BufferError(f"DLPack: {error}") from error
    with unit.current():
        return (array if copy is False else array.copy()).__dlpack__(stream=stream)


def from_producer(unit: Unit, producer: Any, copy: bool | None) -> tuple[StridedArray, DType]:
    """Return a value over the memory of a DLPack producer, or over a copy, and its dtype."""
    with unit.current():
        array = cupy.from_dlpack(producer)
        if copy:
            array = array.copy()
    value = from_cupy(unit, array)
    return value, value.dtype
