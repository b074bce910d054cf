"""Memory of OpenCL devices shared with others: with the host where it can reach it, and as DLPack capsules.

A capsule of an OpenCL device holds a ``cl_mem``, the handle of a buffer, and an offset into it in bytes
(dmlc/dlpack, ``dlpack.h``). Its reader must use the same context: other contexts have other memory.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyopencl as cl
from tensorbus.backend_api import DType, StridedArray, from_capsule, to_capsule

from .shutdown import blocking

if TYPE_CHECKING:
    from .device import Unit

OPENCL: Final = 4
"""``kDLOpenCL``."""


def host_view(unit: Unit, value: StridedArray) -> Any:
    """Return an array over the value's memory. Raises ``BufferError`` where the host cannot reach it."""
    if not unit.device.host_unified_memory:
        raise BufferError(f"{unit.name} has memory of its own")
    try:
        native = np.dtype(value.dtype.name)
    except TypeError:
        raise BufferError(f"NumPy has no {value.dtype}") from None
    if value.size == 0:
        return np.empty(value.shape, native)
    unit.wait()
    memory = value.buffer.memory
    mapped, _ = blocking(
        cl.enqueue_map_buffer,
        unit.default, memory, cl.map_flags.READ, 0, (memory.size,), np.dtype(np.uint8),
    )  # fmt: skip
    strides = [s * native.itemsize for s in value.strides]
    return np.ndarray(value.shape, native, mapped, value.offset * native.itemsize, strides)


def export(unit: Unit, value: StridedArray, max_version: tuple[int, int] | None) -> Any:
    """Return a capsule over the value's buffer, once all work on it is done; nobody may write to it."""
    unit.wait()
    handle = value.buffer.memory.int_ptr if value.size else None
    return to_capsule(value, handle, (OPENCL, unit.index), max_version)


class Borrowed:
    """Memory of a capsule, in the place of a block: never ours to write to, nor to use again."""

    def __init__(self, memory: cl.Buffer, owner: Any) -> None:
        self.memory = memory
        self.nbytes = memory.size
        self.users = -1  # all queues: who asks finds that no queue has it alone
        self._owner = owner

    def used_by(self, bit: int) -> None:
        """Do nothing: all queues are noted already."""


def borrow(unit: Unit, producer: Any) -> tuple[StridedArray, DType]:
    """Return a value over the buffer that a producer exports, and its dtype.

    Raises ``BufferError`` for a buffer of another context, or elements that no tensor has.
    """
    capsule = from_capsule(producer, unit.dialect.types)
    if prod(capsule.shape) == 0 or capsule.address is None:
        return StridedArray.contiguous(None, capsule.shape, capsule.dtype), capsule.dtype
    memory: Any = cl.Buffer.from_int_ptr(capsule.address, retain=True)
    if memory.context != unit.context:
        raise BufferError(f"from_dlpack: the buffer belongs to another context than that of {unit.name}.")
    block = Borrowed(memory, capsule.owner)
    return StridedArray(block, capsule.shape, capsule.strides, capsule.offset, capsule.dtype), capsule.dtype
