"""Memory of GPUs shared with other libraries, by DLPack: without copies, in the order of both sides' work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import cupy
from tensorbus.backend_api import DType, StridedArray, from_capsule, pack, to_capsule

from ..device import runtime

if TYPE_CHECKING:
    from ..unit import Unit

CUDA: Final = 2
"""``kDLCUDA``."""
_DEFAULT: Final = 1
"""CUDA's default stream, as DLPack counts streams."""
_UNORDERED: Final = -1
ALIGNED: Final = 16


def export(
    unit: Unit, value: StridedArray, *, stream: int | None = None, copy: bool | None = None,
    max_version: tuple[int, int] | None = None, **_: Any,
) -> Any:  # fmt: skip
    """Return a capsule over the value's memory, over a copy with ``copy=True``.

    Work that its reader gives to ``stream`` comes after what makes the value.
    """
    with unit.current():
        own = unit.stream()
        if value.size:
            if value.buffer.stream is not own:
                value.buffer.used_by(own)
            if copy:
                value = _copied(unit, value)
            if stream != _UNORDERED:
                event = own.record()
                cupy.cuda.runtime.streamWaitEvent(_DEFAULT if stream is None else stream, event.ptr)
        address = value.buffer.ptr if value.size else None
        return to_capsule(value, address, (CUDA, unit.index), max_version)


def _copied(unit: Unit, value: StridedArray) -> StridedArray:
    packed = pack(runtime().compiler, value, unit.index)
    if packed.buffer is not value.buffer:
        return packed
    block = unit.pool.allocate(value.nbytes)
    begins = value.buffer.ptr + value.offset * value.dtype.itemsize
    kind = cupy.cuda.runtime.memcpyDeviceToDevice
    cupy.cuda.runtime.memcpyAsync(block.ptr, begins, value.nbytes, kind, unit.stream().ptr)
    return StridedArray.contiguous(block, value.shape, value.dtype)


def borrow(unit: Unit, producer: Any, copy: bool | None) -> tuple[StridedArray, DType]:
    """Return a value over the memory of a DLPack producer, or over a copy, and its dtype.

    Raises ``BufferError`` where it gives no memory, or elements that the device does not have.
    """
    with unit.current():
        capsule = from_capsule(producer, unit.dialect.types, stream=unit.stream().ptr or _DEFAULT)
        if 0 in capsule.shape or capsule.address is None:
            return StridedArray.contiguous(None, capsule.shape, capsule.dtype), capsule.dtype
        size = capsule.dtype.itemsize
        origin = capsule.address + size * capsule.offset
        if origin % size:
            raise BufferError(f"from_dlpack: {capsule.dtype} at an address that is no multiple of {size}.")
        first, behind = (origin + size * place for place in capsule.extent)
        # Kernels move many bytes at once from where a block begins; an offset they look at.
        begins = first - first % ALIGNED
        block = unit.pool.adopt(capsule.owner, begins, behind - begins)
        value = StridedArray(block, capsule.shape, capsule.strides, (origin - begins) // size, capsule.dtype)
        return _copied(unit, value) if copy else value, capsule.dtype
