"""Bytes and foreign arrays in and out of ``numpy.ndarray`` values, and where the memory of values comes from.

NumPy's calls run in a context of their own (``run``), in which floating-point warnings are off and, once a C
compiler has made the runtime, NumPy allocates from a pool that keeps freed blocks (NEP 49). Arrays own their
blocks as they do NumPy's own, so a block goes back when no view, export or tensor refers to it any more.
"""

from __future__ import annotations

import contextvars
import ctypes
import sys
import time
from collections.abc import Callable
from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np
from tensorbus.backend_api import DType, DtypeError, OutOfMemoryError, StridedArray, dtypes

_NARROW_FLOATS: Final = {
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    dtypes.float8_e5m2: ml_dtypes.float8_e5m2,
}
DTYPES: Final[dict[DType, np.dtype[Any]]] = {d: np.dtype(_NARROW_FLOATS.get(d, d.name)) for d in dtypes.ALL}
"""How NumPy names each dtype; the small floats are those of ml_dtypes."""
NAMES: Final = {native: d for d, native in DTYPES.items()}
SMALL_FLOATS: Final = frozenset(DTYPES[d] for d in _NARROW_FLOATS)
"""What NumPy neither exports by DLPack nor reads from it."""
_CPU: Final = (1, 0)
"""``kDLCPU``, and its only unit."""
_QUIET: Final = contextvars.copy_context()
_QUIET.run(np.seterr, all="ignore")
fast_run: Final = _QUIET.run
_SET_HANDLER: Final = 304
"""Where ``PyDataMem_SetHandler`` stands in NumPy's table of C functions, which is part of its ABI."""


def run(function: Callable[..., Any], *values: Any) -> Any:
    """Call ``function`` in the context. One serves one thread at a time: a second thread takes a copy."""
    try:
        return fast_run(function, *values)
    except RuntimeError:
        return _QUIET.copy().run(function, *values)


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return a new array whose elements are not set."""
    return run(np.empty, shape, dtype)


def numpy_table() -> int:
    """Return the address of NumPy's table of C functions, whose places are part of its binary interface."""
    unwrap = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return int(unwrap(np._core.multiarray._ARRAY_API, None))  # type: ignore[attr-defined]


def _place() -> int | None:
    """Return where an array keeps the address of its elements; None where that is not seen."""
    array, word = np.empty(1), ctypes.sizeof(ctypes.c_void_p)
    if sys.implementation.name != "cpython":
        return None
    words = range(2 * word, np.ndarray.__basicsize__, word)
    data = array.ctypes.data
    return next((at for at in words if ctypes.c_void_p.from_address(id(array) + at).value == data), None)


_PLACE: Final = _place()


def address(array: Any) -> int:
    """Return where the elements begin: as ``array.ctypes.data``, which takes ten times as long."""
    if _PLACE is None:
        pointer: int = array.ctypes.data
        return pointer
    return ctypes.c_void_p.from_address(id(array) + _PLACE).value or 0


def use_pool(runtime: ctypes.CDLL, limit: int) -> None:
    """Make NumPy allocate from the runtime's pool, in the context only; it keeps up to ``limit`` bytes."""
    runtime.tb_set_limit.argtypes, runtime.tb_set_limit.restype = (ctypes.c_size_t,), None
    runtime.tb_reserved.argtypes, runtime.tb_reserved.restype = (), ctypes.c_size_t
    runtime.tb_set_limit(limit)
    python = ctypes.pythonapi
    wrap = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCapsule_New", python)
    )
    address = ctypes.cast(numpy_table(), ctypes.POINTER(ctypes.c_void_p))[_SET_HANDLER]
    handler = ctypes.addressof(ctypes.c_char.in_dll(runtime, "tb_handler"))
    name = ctypes.addressof(ctypes.c_char.in_dll(runtime, "tb_handler_name"))
    while True:
        try:
            fast_run(
                ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address),
                wrap(handler, name, None),
            )
            return
        except RuntimeError:  # another thread is in the context
            time.sleep(0.0001)


def from_bytes(data: memoryview, shape: tuple[int, ...], dtype: DType) -> Any:
    """Return a new array with a copy of C-ordered bytes."""
    try:
        out = empty(shape, DTYPES[dtype])
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
    shared = np.asarray(array)
    native = DTYPES[dtype]
    if shared.dtype.type is np.void:  # memory of another device's
        shared = shared.view(native)
    if shared.dtype != native:
        if not copy:
            raise ValueError(
                f"asarray: an array of {shared.dtype} in foreign byte order cannot be shared; copy it."
            )
        return run(shared.astype, native)
    return run(shared.copy, "C") if copy else shared


def from_producer(producer: Any, copy: bool | None) -> tuple[Any, DType]:
    """Return the array that a DLPack producer exports, and its dtype."""
    here = int(producer.__dlpack_device__()[0]) == 1
    try:
        array = np.from_dlpack(producer, device=None if here else "cpu", copy=copy)
    except (RuntimeError, BufferError) as error:
        try:
            return _small_floats(producer, {} if here else {"dl_device": _CPU}, copy)
        except BufferError:
            if isinstance(error, BufferError):
                raise error from None
            raise DtypeError(f"from_dlpack: NumPy, which reads the capsule, refuses it: {error}") from error
    if array.dtype not in NAMES:
        raise DtypeError(f"from_dlpack: no tensor dtype is {array.dtype}.")
    return array, NAMES[array.dtype]


def small_floats_capsule(
    value: Any, *, max_version: tuple[int, int] | None = None, copy: bool | None = None, lent: bool = False,
    **_: Any,
) -> Any:  # fmt: skip
    """Return a capsule over an array of small floats, as NumPy exports others; see ``to_dlpack``."""
    from tensorbus.backend_api import to_capsule

    versioned = max_version is not None and tuple(max_version) >= (1, 0)
    if copy or not (lent or versioned or copy is False):
        value, lent = run(value.copy, "C"), True
    size = value.itemsize
    strides = tuple([step // size for step in value.strides])
    array = StridedArray(value, value.shape, strides, 0, NAMES[value.dtype])
    return to_capsule(array, value.ctypes.data if value.size else None, _CPU, max_version, writable=lent)


class _Memory:
    """Memory of a capsule, as NumPy takes it: bytes, or numbers of the same size as the elements."""

    def __init__(self, taken: Any) -> None:
        size = taken.dtype.itemsize
        self.owner = taken.owner
        self.__array_interface__ = {
            "version": 3, "typestr": np.dtype(f"u{size}").str, "shape": taken.shape,
            "strides": tuple([step * size for step in taken.strides]),
            "data": ((taken.address or 0) + taken.offset * size, not taken.writable),
        }  # fmt: skip


def _small_floats(producer: Any, options: dict[str, Any], copy: bool | None) -> tuple[Any, DType]:
    """Return an array over a producer's small floats. Raises ``BufferError`` for elements of other dtypes."""
    from tensorbus.backend_api import from_capsule

    if copy is False:
        options["copy"] = False
    taken = from_capsule(producer, frozenset(_NARROW_FLOATS), **options)
    native = DTYPES[taken.dtype]
    if 0 in taken.shape:
        return empty(taken.shape, native), taken.dtype
    array = np.asarray(_Memory(taken)).view(native)
    return run(array.copy, "C") if copy else array, taken.dtype


def pool_context() -> contextvars.Context:
    """Return another context like that of ``run``, for who allocates in it alone."""
    return _QUIET.copy()
