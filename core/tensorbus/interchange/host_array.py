"""Values in and out: Python data, buffers, NumPy arrays, DLPack, and from one device to another.

Core knows no array library: bytes travel by the buffer protocol, and a device whose values are host arrays
says so by implementing ``SupportsHostArrays``.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Sequence
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from ..devices.device import Device, ValueType
from ..dispatch.kernel_tables import tables_of
from ..dispatch.modes import base_device, inner_device, lift_to, readable
from ..dtypes import definition as dt
from ..dtypes.definition import DType, Scalar, check_scalar
from ..errors import ArgumentError, DtypeError, TensorbusError
from ..ops.argument_kinds import shown
from ..ops.call_errors import flags, with_form
from ..ops.definition import Shape, table
from ..ops.elementwise.where_cast import cast
from ..plugins import dlpack_types, host_backend
from ..tensor.tensor import Tensor, materialize, wrap
from ..tracing import host_prologue
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import active_tracer
from ..tracing.sym_int import SymInt
from .lent_memory import adopt, lend
from .nested_sequence import arranged, numbers
from .transfer import by_device, check_dtype, device_of, from_bytes, runtime, to, to_bytes

if TYPE_CHECKING:
    from ..backend_interface import capabilities

_PYTHONS: Final = (bool, int, float, complex, list, tuple, range)
CODES: Final = {
    dt.bool_: "?", dt.int8: "b", dt.int16: "h", dt.int32: "i", dt.int64: "q", dt.uint8: "B", dt.uint16: "H",
    dt.uint32: "I", dt.uint64: "Q", dt.float16: "e", dt.float32: "f", dt.float64: "d", dt.complex64: "f",
    dt.complex128: "d",
}  # fmt: skip
"""Format characters of ``struct`` for the elements; complex ones are two. Small floats have no code."""


def _host_arrays(where: Device) -> capabilities.SupportsHostArrays | None:
    from ..backend_interface import capabilities

    host_runtime: object = runtime(where)
    return host_runtime if isinstance(host_runtime, capabilities.SupportsHostArrays) else None


@with_form
def asarray(
    obj: Any,
    /,
    *,
    dtype: DType | str | None = None,
    device: Device | str | None = None,
    copy: bool | None = None,
) -> Tensor:
    """Return ``obj`` as a tensor: a number, nested sequences, a tensor, an array, a buffer, DLPack.

    What has ``__array__``, such as a Series or a DataFrame, is the array that it gives.
    Without ``dtype``, arrays keep theirs, floats give float32, integers int64. Host arrays are copied, so
    that changing them later changes no tensor; ``copy=False`` shares their memory where the device can, and
    raises ``ValueError`` where it cannot. Raises ``DtypeError`` for elements that are no numbers.

    >>> import tensorbus as tb
    >>> tb.asarray([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    want = None if dtype is None else dt.dtype(dtype)
    if isinstance(obj, Tensor):
        moved = to(obj, None, want, device=device, copy=copy is True)
        if copy is False and moved._vtype is not obj._vtype:
            raise ValueError(f"asarray: {obj._vtype} as {moved._vtype} needs a copy; drop copy=False.")
        return moved
    where = device_of(device)
    inner = inner_device(where)
    if inner is not None:
        return lift_to(asarray(obj, dtype=dtype, device=inner, copy=copy), where)
    if active_modes and (symbolic := _moving(obj, want, where)) is not None:
        return symbolic
    keeps = want is None and hasattr(obj, "__array_interface__")  # NumPy's float64 is a float, with a dtype
    if isinstance(obj, _PYTHONS) and not keeps:
        if copy is False:
            raise ValueError("asarray: Python numbers and sequences are always copied; drop copy=False.")
        return _from_sequence(obj, want, where)
    name = getattr(getattr(obj, "dtype", None), "name", None)
    if name is not None and hasattr(obj, "__array_interface__"):
        return _from_array(obj, str(name), want, where, copy)
    if hasattr(obj, "__dlpack__"):
        return _from_producer(obj, want, where, copy)
    try:
        view = memoryview(obj)
    except TypeError:
        if hasattr(obj, "__array__"):  # a Series or DataFrame
            return asarray(obj.__array__(), dtype=dtype, device=device, copy=copy)
        raise DtypeError(
            f"asarray: {type(obj).__name__} is no number, sequence, tensor, array, buffer or DLPack producer."
        ) from None
    return _from_buffer(view, want, where, copy)


def _moving(obj: Any, want: DType | None, where: Device) -> Tensor | None:
    """Return a tensor of numbers that are others at each run of a program; None: ``obj`` holds none."""
    active = active_tracer()
    if active is None or not (active.prologue.varying or active.prologue.shape_env):
        return None
    flat, known = host_prologue.flat_numbers(obj)
    if not flat:
        return None
    shape, _, common = numbers(known)
    fill = partial(table.function("full"), (), dtype=common if want is None else want, device=where)

    def make() -> Any:
        one = [table.function("reshape")(fill(x), (1,)) for x in flat]
        return table.function("reshape")(table.function("concat")(one), shape)

    traced: Tensor = active.trace_symbolic(partial(_from_sequence, known, want, where), make)
    return traced


def as_assigned_value(value: Any, x: Tensor) -> Tensor:
    """Return what an assignment puts into ``x``. Raises ``DtypeError`` for numbers that do not fit."""
    if active_modes and type(value) is SymInt and (x.dtype.is_floating or x.dtype is dt.int64):
        value = value.number()
    if isinstance(value, _PYTHONS) and not hasattr(value, "__array_interface__"):
        out = _from_sequence(value, x.dtype, base_device(x.device), fit=True)
        return lift_to(out, x.device)
    return asarray(value, dtype=x.dtype, device=x.device)


@with_form
def astype(
    x: Tensor, dtype: DType | str, /, *, copy: bool = True, device: Device | str | None = None
) -> Tensor:
    """Return ``x`` with another dtype, and on another device where one is named; gradients flow through.

    With ``copy=False`` a tensor that is so already is returned itself. Raises ``DtypeError`` for a complex
    tensor that should become real: name the part, ``.real`` or ``.imag``.

    >>> import tensorbus as tb
    >>> tb.astype(tb.asarray([1.5, -2.5]), tb.int32).tolist()
    [1, -2]
    """
    return to(x, None, dtype, device=device, copy=copy)


@with_form
def tensor(
    data: Any,
    /,
    *,
    dtype: DType | str | None = None,
    device: Device | str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return a new tensor with a copy of ``data``; PyTorch's name for ``asarray``."""
    out = asarray(data, dtype=dtype, device=device, copy=True)
    out = out if out._node is None else wrap(out._value, out._vtype)
    return out.requires_grad_(requires_grad)


def _from_sequence(obj: Any, want: DType | None, where: Device, fit: bool = False) -> Tensor:
    shape, flat, common = numbers(obj)
    if not fit and want is not None and want.is_integer:  # as arrays are cast: toward zero
        flat = [int(x) if isinstance(x, float) and isfinite(x) else x for x in flat]
    return _packed(flat, shape, common if want is None else want, where)


def _packed(flat: Sequence[Scalar], shape: Shape, dtype: DType, where: Device) -> Tensor:
    check_dtype("asarray", dtype, where)
    stored = dtype if dtype in CODES else dt.float32
    values: list[Any] = [check_scalar("asarray", x, stored) for x in flat]
    if dtype.is_complex:
        values = [part for x in values for part in (x.real, x.imag)]
    try:
        data = struct.pack(f"={len(values)}{CODES[stored]}", *values)
    except OverflowError:  # struct refuses what a cast would make infinite
        limit = struct.unpack("=e", b"\xff\x7b")[0] if stored is dt.float16 else None
        values = [_saturated(x, stored, limit) for x in values]
        data = struct.pack(f"={len(values)}{CODES[stored]}", *values)
    out = from_bytes(memoryview(data).cast("B"), shape, stored, where)
    return out if stored is dtype else cast(out, dtype)


def _saturated(x: float, dtype: DType, _: Any) -> float:
    try:
        struct.pack(f"={CODES[dtype]}", x)
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")
    return x


def _from_array(obj: Any, name: str, want: DType | None, where: Device, copy: bool | None) -> Tensor:
    name = "bool" if name == "bool_" else name
    if name not in dt.BY_NAME:
        raise DtypeError(
            f"asarray: an array of dtype {name} holds no numbers that tensors have; convert it first."
        )
    stored = dt.BY_NAME[name]
    check_dtype("asarray", stored if want is None else want, where)
    if copy is False and want not in (None, stored):
        raise ValueError(f"asarray: an array of {stored} as {want} needs a copy; drop copy=False.")
    host = _host_arrays(where)
    if host is not None:
        out = wrap(host.from_numpy(obj, stored, copy is not False), ValueType.of(stored, where))
        out = adopt(out) if copy is False else out
    elif copy is False:
        raise ValueError(f"asarray: {where} cannot share the memory of a host array; drop copy=False.")
    else:
        known = tables_of(where.type).dtypes(where.index)
        if known is not None and stored not in known:
            return asarray(asarray(obj, dtype=want, device=host_device()), device=where)
        out = from_bytes(
            memoryview(obj.astype(obj.dtype.newbyteorder("=")).tobytes()), obj.shape, stored, where
        )
    return out if want is None or want is stored else cast(out, want)


def host_device() -> Device:
    """Return the device whose values lie in the host's memory."""
    return Device(host_backend().type, 0)


def _from_producer(obj: Any, want: DType | None, where: Device, copy: bool | None) -> Tensor:
    """Read another library's array; copy it unless that has happened on the way, or is forbidden."""
    try:
        imported = from_dlpack(obj, copy=copy)
    except BufferError as error:
        if copy is False:
            raise ValueError(f"asarray: the memory cannot be shared: {error}") from error
        raise
    out = asarray(imported, dtype=want, device=where, copy=copy)
    if copy is None and out._vtype is imported._vtype:
        return from_bytes(to_bytes(out), out.shape, out.dtype, where)
    return out


def _from_buffer(view: memoryview, want: DType | None, where: Device, copy: bool | None) -> Tensor:
    code = view.format.lstrip("@=<>!") if view.format else "B"
    if code in ("l", "L"):
        code = {"l": "q", "L": "Q"}[code] if view.itemsize == 8 else {"l": "i", "L": "I"}[code]
    stored = next((d for d, c in CODES.items() if c == code and not d.is_complex), None)
    if stored is None:
        raise DtypeError(f"asarray: a buffer of format {view.format!r} holds no numbers that tensors have.")
    if copy is False:
        host = _host_arrays(where)
        if host is None or want not in (None, stored):
            raise ValueError(f"asarray: a buffer of {stored} as {want or stored} on {where} needs a copy.")
        return adopt(wrap(host.from_numpy(view, stored, False), ValueType.of(stored, where)))
    data = bytearray(view.tobytes())
    foreign = "<" if sys.byteorder == "big" else ">"
    if (view.format or "")[:1] in (foreign, "!") and stored.itemsize > 1:
        data[:] = b"".join(data[k : k + stored.itemsize][::-1] for k in range(0, len(data), stored.itemsize))
    shape = tuple(view.shape) if view.shape is not None else (len(data) // stored.itemsize,)
    check_dtype("asarray", stored if want is None else want, where)
    out = from_bytes(memoryview(data), shape, stored, where)
    return out if want is None or want is stored else cast(out, want)


def from_pickle(
    kind: type[Tensor], data: bytes, shape: Shape, dtype: DType, where: Device, requires_grad: bool
) -> Tensor:
    """Return a tensor of class ``kind`` as ``pickle`` wrote it, on the device that it came from."""
    out = object.__new__(kind)
    held = from_bytes(memoryview(data), shape, dtype, device_of(where))
    out._value, out._vtype, out._node = held._value, held._vtype, None
    return out.requires_grad_(requires_grad)


def to_list(x: Tensor) -> Any:
    """Return nested lists of Python scalars, or one scalar."""
    wide = x.detach() if x.dtype in CODES else cast(x.detach(), dt.float32)
    return arranged(scalars(to_bytes(wide), wide.dtype) if x.size else [], x.shape)


def scalars(data: memoryview, dtype: DType) -> list[Any]:
    """Return elements of a dtype in ``CODES`` as Python scalars."""
    flat = _elements(data, CODES[dtype])
    if dtype.is_complex:
        flat = [complex(a, b) for a, b in zip(flat[::2], flat[1::2], strict=True)]
    return flat


def _elements(data: memoryview, code: str) -> list[Any]:
    if code == "e":  # memoryview knows it from Python 3.12 on
        return list(struct.unpack(f"={len(data) // 2}e", data))
    cast: Any = data.cast("B").cast  # which takes the letters of formats, one by one, for its type
    elements: list[Any] = cast(code).tolist()
    return elements


def to_numpy(x: Tensor) -> Any:
    """Return a ``numpy.ndarray``: over the tensor's own memory, read-only, where its device can."""
    x = readable(x)
    host = _host_arrays(x.device)
    if host is not None:
        return by_device(host.to_numpy, materialize(x))
    return to_numpy(to(x.detach(), host_device()))


def to_host_array(x: Tensor, dtype: Any, copy: bool | None) -> Any:
    """Serve ``numpy.asarray(x)``, for host devices only: a copy between devices is asked for by name."""
    host = _host_arrays(x.device)
    if host is None:
        raise TypeError(f"a tensor on {x.device} is no host array; copy it with .numpy() or .to(device).")
    if copy is not None:
        copy = flags("__array__", copy=copy)["copy"]
    if dtype is not None:
        dtype = _array_dtype(host, dtype)
    array = lend(x) if copy is not True else None
    array = by_device(host.to_numpy, materialize(x)) if array is None else array
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError(f"a tensor of {x.dtype} cannot be seen as {dtype} without a copy.")
        return array.astype(dtype)
    return array.copy() if copy else array


def _array_dtype(host: Any, dtype: Any) -> Any:
    """Return an array library's own dtype for a name of it. Raises ``DtypeError`` for what names none."""
    empty = host.to_numpy(host.from_host(memoryview(b""), (0,), dt.uint8, 0))
    try:
        return empty.astype(dtype).dtype
    except (TypeError, ValueError) as error:
        raise DtypeError(
            f"__array__: 'dtype' must be None or a dtype of NumPy's, got {shown(dtype)}: {error}."
        ) from None


def to_buffer(x: Tensor) -> memoryview:
    """Serve ``memoryview(x)`` (Python 3.12 and later): over the tensor's own memory, which it lends."""
    host = _host_arrays(x.device)
    if host is None:
        raise BufferError(f"a tensor on {x.device} does not lie in host memory; copy it with .numpy().")
    try:
        array = lend(x)
        return memoryview(host.to_numpy(materialize(x)) if array is None else array)
    except ValueError as error:
        raise BufferError(f"buffers have no format for {x.dtype}: {error}; cast the tensor first.") from error


def from_dlpack(x: Any, /, *, device: Device | str | None = None, copy: bool | None = None) -> Tensor:
    """Return the tensor that another library exports, over its memory where both allow it.

    Raises ``BufferError`` where ``copy=False`` and a copy is needed, or no installed device can read it.

    >>> import numpy, tensorbus as tb
    >>> tb.from_dlpack(numpy.arange(3.0)).tolist()
    [0.0, 1.0, 2.0]
    """
    from ..backend_interface import capabilities

    target = None if device is None else device_of(device)
    if isinstance(x, Tensor):
        if target not in (None, x.device) and copy is False:
            raise BufferError(f"from_dlpack: {x.device} to {target} needs a copy; drop copy=False.")
        return to(x.detach(), target)
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise ArgumentError(
            f"from_dlpack: an array with __dlpack__ and __dlpack_device__ is needed, got {type(x).__name__};"
            f" asarray takes numbers, lists and buffers."
        )
    place = x.__dlpack_device__()
    try:
        code, index = map(operator.index, place)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"from_dlpack: {type(x).__name__}.__dlpack_device__() must return two integers, a device's type"
            f" and index, got {shown(place)}."
        ) from None
    source_type = dlpack_types().get(code)
    if source_type is None and target == host_device():
        source_type, index = host_device().type, 0
    if source_type is None:
        raise BufferError(
            f"from_dlpack: no installed device reads DLPack device type {code};"
            f" known are {dlpack_types()}. Copy the array to the host first."
        )
    where = Device(source_type, index if device is None or index else 0)
    importer: object = runtime(where)
    if not isinstance(importer, capabilities.SupportsDLPack):
        raise BufferError(f"from_dlpack: {where} does not read DLPack.")
    if target is not None and target != where and copy is False:
        raise BufferError(f"from_dlpack: {where} to {target} needs a copy; drop copy=False.")
    try:
        value, dtype = importer.from_dlpack(x, where.index, copy=copy)
    except (BufferError, MemoryError, TensorbusError):
        raise
    except Exception as error:
        raise ArgumentError(
            f"from_dlpack: {where} could not read what {type(x).__name__}.__dlpack__() returned: {error}."
            f" A capsule can be read once; each call of __dlpack__ must make another."
        ) from error
    out = wrap(value, ValueType.of(dtype, where))
    out = out if copy else adopt(out)
    return out if target is None or target == where else to(out, target)
