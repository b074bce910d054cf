"""DLPack capsules over memory that has an address or a handle: for devices whose values are strided arrays.

A capsule holds a pointer, a shape and strides (dmlc/dlpack, ``dlpack.h``, 1.1). From version 1.0 on it says
whether one may write to what it shows; readers of older ones cannot be told.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..backend_interface.foreign_finalizer import call_when_gone
from ..backend_interface.strided_array import StridedArray, row_major
from ..dtypes import definition as dt
from ..dtypes.definition import DType

_VERSION: Final = (1, 1)
_READ_ONLY: Final = 1
_KINDS: Final = {
    dt.bool_: 6, dt.bfloat16: 4, dt.float8_e4m3fn: 10, dt.float8_e5m2: 12, **dict.fromkeys(dt.SIGNED, 0),
    **dict.fromkeys(dt.UNSIGNED, 1), **dict.fromkeys((dt.float16, dt.float32, dt.float64), 2),
    **dict.fromkeys(dt.COMPLEX, 5),
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
    """The struct to which a capsule named ``dltensor`` points."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """The struct to which a capsule named ``dltensor_versioned`` points, from DLPack 1.0 on."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


_NAMES: Final[dict[bytes, type[Any]]] = {b"dltensor_versioned": _Versioned, b"dltensor": _Managed}
_TAKEN: Final = {b"dltensor_versioned": b"used_dltensor_versioned", b"dltensor": b"used_dltensor"}
_held: Final[dict[int, list[Any]]] = {}
"""Objects that exported capsules keep alive, by the address of their struct, until their deleter is called.

First the capsule, as long as nobody has taken it. A destructor of its own would run Python where a reader
that refuses the capsule has an error pending, and lose that error.
"""
_OWN_REFERENCES: Final = 3
"""References to a capsule that only we have: the list's, a name's and that of the call which counts them."""


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """Return a function of Python's C interface."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new_capsule: Final = _python(
    "PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)
_is_valid: Final = _python("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer_of: Final = _python("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_rename: Final = _python("PyCapsule_SetName", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


def held() -> int:
    """Return how many capsules, or arrays that took one, others have."""
    return len(_held)


def _let_go_of_untaken() -> None:
    """Free what nobody has taken and nobody can take: whoever takes a capsule gives it another name."""
    for address, entry in list(_held.items()):
        capsule = entry[0]
        if capsule is None:
            continue
        if not any(_is_valid(id(capsule), name) for name in _NAMES):
            entry[0] = None
        elif sys.getrefcount(capsule) <= _OWN_REFERENCES:
            _held.pop(address, None)


_delete: Final = _Deleter(_held.pop)  # a function of C: one in Python would lose the user's Ctrl-C
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_delete))  # consumers may call it after this module is gone


def to_capsule(
    value: StridedArray, address: int | None, device: tuple[int, int],
    max_version: tuple[int, int] | None, *, writable: bool = False,
) -> Any:  # fmt: skip
    """Return a capsule over the memory of ``value``, which it keeps alive.

    ``address`` is that of the buffer, or its handle; None where there are no elements. ``device`` is what
    ``__dlpack_device__`` answers. All work on the memory is done, or ordered before the reader's. Nobody may
    write to the memory unless it is ``writable``.
    """
    _let_go_of_untaken()
    rank = len(value.shape)
    lengths, strides = (ctypes.c_int64 * rank)(*value.shape), (ctypes.c_int64 * rank)(*value.strides)
    tensor = _Tensor(
        address, *device, rank, _KINDS[value.dtype], 8 * value.dtype.itemsize, 1, lengths, strides,
        value.offset * value.dtype.itemsize,
    )  # fmt: skip
    deleter = ctypes.cast(_delete, ctypes.c_void_p)
    versioned = max_version is not None and tuple(max_version) >= (1, 0)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    struct = (
        _Versioned(*_VERSION, None, deleter, 0 if writable else _READ_ONLY, tensor)
        if versioned
        else _Managed(tensor, None, deleter)
    )
    place = ctypes.addressof(struct)
    capsule = _new_capsule(place, name, None)
    _held[place] = [capsule, struct, lengths, strides, value, name]
    return capsule


class Owner:
    """Keeps the memory of a capsule until it is gone itself: then the producer's deleter is called."""

    __slots__ = ("__weakref__",)

    def __init__(self, struct: Any) -> None:
        if struct.deleter:
            address = ctypes.c_void_p(ctypes.addressof(struct))
            call_when_gone(self, _Deleter(struct.deleter), address)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A producer's value: an address or a handle, and how elements lie from the ``offset``-th on.

    ``writable`` is true where the producer says so, which those of the protocol before 1.0 cannot.
    """

    address: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: DType
    owner: Owner
    writable: bool

    @property
    def extent(self) -> tuple[int, int]:
        """The places of the first and behind the last element in memory, from ``offset`` on."""
        steps = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        return sum(step for step in steps if step < 0), sum(step for step in steps if step > 0) + 1


def _signed(stride: int, size: int) -> int:
    """Return a stride as a number of bytes that addresses have: a producer divides negative ones unsigned."""
    return ((stride * size + (1 << 63)) % (1 << 64) - (1 << 63)) // size


def from_capsule(producer: Any, dtypes: Mapping[DType, Any] | frozenset[DType], **options: Any) -> Taken:
    """Take the memory that ``producer`` shares; ``options`` are those of its ``__dlpack__``.

    Raises ``BufferError`` where it gives none, or elements of none of ``dtypes``.
    """
    try:
        capsule = producer.__dlpack__(**options, max_version=_VERSION)
    except TypeError:  # a producer of the protocol before 1.0
        capsule = producer.__dlpack__(**options)
    name = next((n for n in _NAMES if _is_valid(id(capsule), n)), None)
    if name is None:
        raise BufferError(f"from_dlpack: {type(producer).__name__} gave no capsule, or one that was taken.")
    struct = _NAMES[name].from_address(_pointer_of(id(capsule), name))
    tensor = struct.tensor
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1 or dtype not in dtypes:
        raise BufferError(
            f"from_dlpack: the device has no elements of DLPack type {tensor.code} with {tensor.bits} bits."
        )
    if tensor.byte_offset % dtype.itemsize:
        raise BufferError(f"from_dlpack: {dtype} that begin {tensor.byte_offset} bytes into memory.")
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = row_major(shape)
    if tensor.strides:
        strides = tuple([_signed(s, dtype.itemsize) for s in tensor.strides[: tensor.ndim]])
    _rename(id(capsule), _TAKEN[name])
    return Taken(
        address=tensor.data, shape=shape, strides=strides, offset=tensor.byte_offset // dtype.itemsize,
        dtype=dtype, owner=Owner(struct),
        writable=name == b"dltensor_versioned" and not struct.flags & _READ_ONLY,
    )  # fmt: skip
