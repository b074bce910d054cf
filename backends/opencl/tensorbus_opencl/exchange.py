"""Memory of OpenCL devices shared with others: with the host where it can reach it, and as DLPack capsules.

A capsule of an OpenCL device holds a ``cl_mem``, the handle of a buffer, and an offset into it in bytes
(dmlc/dlpack, ``dlpack.h``). Its reader must use the same context: other contexts have other memory.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyopencl as cl
from tensorbus.backend_api import DType, StridedArray, dtypes

if TYPE_CHECKING:
    from .device import Unit

OPENCL: Final = 4
"""``kDLOpenCL``."""
_VERSION: Final = (1, 1)
_READ_ONLY: Final = 1
_KINDS: Final = {
    dtypes.bool_: 6, dtypes.bfloat16: 4, dtypes.float8_e4m3fn: 10, dtypes.float8_e5m2: 12,
    **dict.fromkeys((dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64), 0),
    **dict.fromkeys((dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64), 1),
    **dict.fromkeys((dtypes.float16, dtypes.float32, dtypes.float64), 2),
    **dict.fromkeys((dtypes.complex64, dtypes.complex128), 5),
}  # fmt: skip
"""``DLDataTypeCode`` of each dtype."""
_DTYPES: Final = {(code, 8 * dtype.itemsize): dtype for dtype, code in _KINDS.items()}
_Deleter: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    """What a capsule named ``dltensor`` points to."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """What a capsule named ``dltensor_versioned`` points to, from DLPack 1.0 on."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_NAMES: Final[dict[bytes, type[Any]]] = {b"dltensor_versioned": _Versioned, b"dltensor": _Managed}
_TAKEN: Final = {b"dltensor_versioned": b"used_dltensor_versioned", b"dltensor": b"used_dltensor"}
_held: Final[dict[int, tuple[Any, ...]]] = {}
"""What exported capsules need, by the address of their struct, until their deleter is called."""


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of Python's C interface."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new_capsule: Final = _python("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Deleter)
_is_valid: Final = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_of: Final = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_rename: Final = _python("PyCapsule_SetName", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


def _let_go(address: int) -> None:
    _held.pop(address, None)


def _let_go_of_untaken(capsule: int) -> None:
    """Free what nobody has taken: whoever takes a capsule gives it another name."""
    for name in _NAMES:
        if _is_valid(capsule, name):
            _held.pop(_pointer_of(capsule, name), None)


_delete: Final = _Deleter(_let_go)
_drop: Final = _Deleter(_let_go_of_untaken)
for _callback in (_delete, _drop):  # consumers may call them after this module is gone
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


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
    mapped, _ = cl.enqueue_map_buffer(
        unit.default, memory, cl.map_flags.READ, 0, (memory.size,), np.dtype(np.uint8)
    )
    strides = [s * native.itemsize for s in value.strides]
    return np.ndarray(value.shape, native, mapped, value.offset * native.itemsize, strides)


def to_capsule(unit: Unit, value: StridedArray, max_version: tuple[int, int] | None) -> Any:
    """Return a capsule over the value's buffer, once all work on it is done; nobody may write to it."""
    unit.wait()
    rank = len(value.shape)
    lengths, strides = (ctypes.c_int64 * rank)(*value.shape), (ctypes.c_int64 * rank)(*value.strides)
    tensor = _Tensor(
        value.buffer.memory.int_ptr if value.size else None, OPENCL, unit.index, rank, _KINDS[value.dtype],
        8 * value.dtype.itemsize, 1, lengths, strides, value.offset * value.dtype.itemsize,
    )  # fmt: skip
    deleter = ctypes.cast(_delete, ctypes.c_void_p)
    versioned = max_version is not None and tuple(max_version) >= (1, 0)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    struct = (
        _Versioned(*_VERSION, None, deleter, _READ_ONLY, tensor)
        if versioned
        else _Managed(tensor, None, deleter)
    )
    address = ctypes.addressof(struct)
    _held[address] = (struct, lengths, strides, value, name)
    return _new_capsule(address, name, _drop)


class Borrowed:
    """Memory of a capsule, in the place of a block: never ours to write to, nor to use again."""

    def __init__(self, memory: cl.Buffer, struct: Any) -> None:
        self.memory = memory
        self.nbytes = memory.size
        self.users = -1  # all queues: who asks finds that no queue has it alone
        self._struct = struct

    def __del__(self) -> None:
        if self._struct.deleter:
            _Deleter(self._struct.deleter)(ctypes.addressof(self._struct))


def from_capsule(unit: Unit, producer: Any) -> tuple[StridedArray, DType]:
    """Return a value over the buffer that a producer exports, and its dtype.

    Raises ``BufferError`` for a buffer of another context, or elements that no tensor has.
    """
    try:
        capsule = producer.__dlpack__(max_version=_VERSION)
    except TypeError:  # a producer of the protocol before 1.0
        capsule = producer.__dlpack__()
    name = next((n for n in _NAMES if _is_valid(id(capsule), n)), None)
    if name is None:
        raise BufferError(f"from_dlpack: {type(producer).__name__} gave no capsule, or one that was taken.")
    struct = _NAMES[name].from_address(_pointer_of(id(capsule), name))
    tensor = struct.tensor
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1 or dtype not in unit.dialect.types:
        raise BufferError(
            f"from_dlpack: {unit.name} has no elements of DLPack type {tensor.code} with {tensor.bits} bits."
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    if prod(shape) == 0:
        return StridedArray.contiguous(None, shape, dtype), dtype
    memory: Any = cl.Buffer.from_int_ptr(tensor.data, retain=True)
    if memory.context != unit.context or tensor.byte_offset % dtype.itemsize:
        raise BufferError(f"from_dlpack: the buffer belongs to another context than that of {unit.name}.")
    packed = StridedArray.contiguous(Borrowed(memory, struct), shape, dtype)
    _rename(id(capsule), _TAKEN[name])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else packed.strides
    return packed.view(shape, strides, tensor.byte_offset // dtype.itemsize), dtype
