"""Bytes in and out of devices, and tensors from one to another: ``to``, and its gradient, which goes back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from ..autograd import engine
from ..backend_interface.protocols import Runtime
from ..devices.device import Device, ValueType, device, get_default_device
from ..dispatch.kernel_tables import tables_of
from ..dispatch.modes import (
    base_device,
    inner_device,
    is_value_mode,
    lift_to,
    place_of,
    readable,
    value_modes,
    wraps,
)
from ..dispatch.plan import Plan
from ..dispatch.result_check import describe
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import DeviceError, DtypeError, OutOfMemoryError, TensorbusError, UnsupportedDtypeError, suggest
from ..ops.definition import Op, Shape, Spec, table
from ..ops.elementwise.where_cast import cast
from ..plugins import backend, known_types
from ..tensor.tensor import Tensor, materialize, wrap
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import active_tracer, untraced

if TYPE_CHECKING:
    from ..backend_interface.capabilities import SupportsAddresses

_addressed: Final[dict[type[Any], bool]] = {}
"""By class of runtime, whether its device's memory has addresses: asking a protocol is slow."""


def runtime(where: Device) -> Runtime:
    """Return the runtime of a device, bringing it up if need be."""
    if is_value_mode(where.type):
        raise DeviceError(
            f"a tensor on {where} stands for many values, or for one that is not computed yet; its elements"
            f" cannot be read, nor a branch depend on them, inside of a transform."
        )
    return backend(where.type).runtime


def device_of(where: Device | str | None) -> Device:
    """Return the device that is meant: the default one where none is named."""
    if isinstance(where, Device) and inner_device(where) is not None:
        return where
    return get_default_device() if where is None else device(where)


def check_dtype(what: str, dtype: DType, where: Device) -> None:
    """Raise ``UnsupportedDtypeError`` where the device has no ``dtype``; ``what`` is what was asked for."""
    known = tables_of(where.type).dtypes(where.index)
    if known is not None and dtype not in known:
        raise UnsupportedDtypeError(
            f"{what}: {where} has no {dtype}; it has {', '.join(sorted(d.name for d in known))}."
            f" Name another dtype, or another device."
        )


def by_device(function: Callable[..., Any], *args: Any) -> Any:
    """Call a runtime's function; a capture that is going on does not look into it."""
    return untraced(partial(function, *args)) if active_modes else function(*args)


def from_bytes(data: memoryview, shape: Shape, dtype: DType, where: Device) -> Tensor:
    """Return a new tensor of C-ordered bytes. Raises ``OutOfMemoryError``."""
    return _of_bytes("from_host", data, shape, dtype, where)


def from_memory(data: memoryview, shape: Shape, dtype: DType, where: Device) -> Tensor:
    """Return a tensor of C-ordered bytes, which it keeps where the device can, and copies where not.

    Nobody else writes to ``data`` afterwards. Raises ``OutOfMemoryError``.
    """
    from ..backend_interface.capabilities import SupportsHostMemory

    name = "from_memory" if isinstance(runtime(where), SupportsHostMemory) else "from_host"
    return _of_bytes(name, data, shape, dtype, where)


def device_address(x: Tensor) -> int | None:
    """Return where the elements of ``x`` begin in its device's memory, for work in the current stream.

    0 where there are none, and None where they do not lie in C order: ``device_contiguous(x)`` has them so.
    Raises ``DeviceError`` for a device whose memory has no addresses.
    """
    place = x.device
    return _addresses(place).address(materialize(x), place.index)


def device_contiguous(x: Tensor) -> Tensor:
    """Return ``x``, or a copy without history whose elements lie in C order in its device's memory.

    Raises ``DeviceError`` for a device whose memory has no addresses, and ``OutOfMemoryError``.
    """
    value = materialize(x)
    contiguous = _addresses(x.device).contiguous(value, x.device.index)
    return x if contiguous is value else wrap(contiguous, x._vtype)


def device_empty(shape: Shape, dtype: DType, where: Device) -> Tensor:
    """Return a new tensor whose elements are whatever was there, for a library to write by its address.

    Raises ``DeviceError`` for a device whose memory has no addresses, and ``OutOfMemoryError``.
    """
    shape = tuple(shape)
    return wrap(_addresses(where).allocate(shape, dtype, where.index), ValueType.of(dtype, where))


def forget_use(x: Tensor) -> None:
    """Forget that the current stream works with a tensor: whoever calls holds it until that is done."""
    at = runtime(x.device)
    if _has_addresses(at):
        at.forget_use(materialize(x), x.device.index)


def _has_addresses(at: Runtime) -> TypeGuard[SupportsAddresses]:
    known = _addressed.get(type(at))
    if known is None:
        from ..backend_interface.capabilities import SupportsAddresses

        known = _addressed[type(at)] = isinstance(at, SupportsAddresses)
    return known


def _addresses(where: Device) -> SupportsAddresses:
    at = runtime(where)
    if not _has_addresses(at):
        raise DeviceError(f"the memory of {where} has no addresses that could be handed to a library.")
    return at


def _of_bytes(name: str, data: memoryview, shape: Shape, dtype: DType, where: Device) -> Tensor:
    """Return the tensor that the device's function of this name makes."""
    shape, make = tuple(shape), getattr(runtime(where), name)
    try:
        value = by_device(make, data, shape, dtype, where.index)
    except TensorbusError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(
            f"{where}: no memory for {dtype}{list(shape)}, {len(data)} bytes. {error}"
        ) from error
    except Exception as error:
        raise backend(where.type).failed(f"runtime.{name}(...)", error) from error
    if getattr(value, "shape", None) != shape:
        raise backend(where.type).breach(f"{name}(...)", describe(value), f"a value of shape {shape}")
    return wrap(value, ValueType.of(dtype, where))


def to_bytes(x: Tensor) -> memoryview:
    """Return the elements as C-ordered bytes, waiting for them."""
    x = readable(x)
    value = materialize(x)
    try:
        data: object = by_device(runtime(x.device).to_host, value, x.dtype, x.device.index)
    except TensorbusError:
        raise
    except Exception as error:
        raise backend(x.device.type).failed("runtime.to_host(...)", error) from error
    nbytes = x.size * x.dtype.itemsize
    if type(data) is not memoryview or data.nbytes != nbytes:
        got = f"{data.nbytes} bytes" if isinstance(data, memoryview) else type(data).__name__
        raise backend(x.device.type).breach(
            "to_host(...)", got, f"a memoryview of {nbytes} bytes, for {x.dtype} of shape {x.shape}"
        )
    return data


def _transfer_arguments(x: Tensor, /, device: Device) -> tuple[tuple[Tensor], dict[str, Any]]:
    return (x,), {"device": device}


def _same_spec(specs: tuple[Spec, ...], **_: Any) -> Spec:
    return specs[0]


_transfer: Op[...] = table.add(
    Op(
        name="transfer",
        family="transfer",
        operands=("x",),
        arguments=_transfer_arguments,
        infer=_same_spec,
        vjp=lambda g, source: (_back_to(g, source),),
        dtypes=dt.ALL,
        doc="``x`` on another device.",
    )
)


def _back_to(g: Tensor, source: Device) -> Tensor:
    return to(g, source)


def to(
    x: Tensor, target: Any = None, dtype: DType | str | None = None, *, device: Any = None,
    copy: bool = False, non_blocking: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``x`` with another dtype, on another device, or both; ``non_blocking``: see ``pinning``.

    What is so already is returned itself, unless a ``copy`` is wanted.
    """
    where: Any = device
    if isinstance(target, Tensor):
        where, dtype = target.device, target.dtype
    elif isinstance(target, (DType, type)) or (isinstance(target, str) and target in dt.BY_NAME):
        dtype = dt.dtype(target)
    elif target is not None:
        where = target
        unknown = isinstance(target, str) and target.partition(":")[0] not in known_types()
        if unknown and (hint := suggest(target, dt.BY_NAME)):
            raise DtypeError(f"to: {target!r} is neither a dtype nor an installed device type.{hint}")
    out = x
    there = x.device if where is None else device_of(where)
    if _is_elsewhere(x, there):
        narrow = dtype is not None and dt.dtype(dtype).itemsize < x.dtype.itemsize
        if dtype is not None and (narrow or not _has(there, x.dtype)):
            out, dtype = cast(out, dtype), None
        out = _moved(out, there, non_blocking)
    if dtype is not None and dt.dtype(dtype) is not out.dtype:
        out = cast(out, dtype)
    return x.clone() if copy and out is x else out


def _is_elsewhere(x: Tensor, there: Device) -> bool:
    """Return whether a tensor has to move; inside of a transform what it stands for may lie there already."""
    if is_value_mode(x.device.type) and not is_value_mode(there.type):
        return place_of(x) != there
    return there != x.device and not wraps(x.device, there)


def _has(where: Device, dtype: DType) -> bool:
    where = base_device(where)
    known = tables_of(where.type).dtypes(where.index)
    return known is None or dtype in known


def transferred(x: Tensor, there: Device) -> Tensor:
    """Return a copy on another device, without a history. Raises ``DeviceError`` where copying fails."""
    from ..backend_interface import capabilities

    own: object = runtime(x.device)
    other: object = runtime(there)
    if isinstance(other, capabilities.HasNoElements):
        return wrap(other.of_shape(x.shape, x.dtype, there.index), ValueType.of(x.dtype, there))
    try:
        if x.device.type == there.type and isinstance(own, capabilities.SupportsPeerCopy):
            value = own.copy_across(materialize(x), x.device.index, there.index)
            return wrap(value, ValueType.of(x.dtype, there))
        return from_bytes(to_bytes(x), x.shape, x.dtype, there)
    except TensorbusError:
        raise
    except Exception as error:
        raise DeviceError(
            f"to: copying {Spec(x.shape, x.dtype)} from {x.device} to {there} failed: {error}"
        ) from error


def _moved(x: Tensor, there: Device, non_blocking: bool = False) -> Tensor:
    inner = inner_device(there)
    if inner is not None:
        return lift_to(to(x, inner), there)
    mode = value_modes.get(x.device.type)
    if mode is not None and mode.parts(x._value):
        value = mode.map_parts(x._value, lambda part: to(part, there, non_blocking=non_blocking))
        kind: Any = x._vtype.cell
        moved = wrap(value, x._vtype) if kind is None else kind._of_moved(value)
        return _recorded(x, moved, place_of(x))
    check_dtype("to", x.dtype, there)
    active = active_tracer() if active_modes else None
    out: Any = NotImplemented if active is None else active.transfer(x, there)
    if out is NotImplemented:
        out = None
        if non_blocking and active is None:
            from .pinned_memory import copied_from_pinned

            out = copied_from_pinned(x, there)
        out = transferred(x, there) if out is None else out
    return _recorded(x, out, x.device)


def _recorded(x: Tensor, result: Tensor, source: Device) -> Tensor:
    """Return a copy of ``x`` elsewhere with its history; the gradient goes back to ``source``."""
    if x._node is not None:
        moved = Plan(
            op=_transfer,
            operands=(x._vtype.materialized,),
            run=None,
            out=result._vtype.materialized,
            casts=(None,),
            attrs={"source": source},
        )
        engine.record(moved, (x,), result)
    return result
