"""Page-locked memory of the host, and copies between it and a device that nobody waits for.

A copy from pinned memory reads it later: the value there cannot change, and is kept until it was read. What a
copy to the host makes is a tensor whose value is on its way: ops, ``numpy()`` and everything else that needs
the elements wait for them, so that none is read too early.
"""

from __future__ import annotations

from typing import Any

from ..backend_interface.capabilities import SupportsHostMemory, SupportsPinnedMemory
from ..devices.device import Device, DeviceLike, ValueType, device, get_default_device
from ..errors import DeviceError
from ..ops.definition import Shape
from ..plugins import backend, host_type, known_types, opened
from ..tensor.tensor import Tensor, materialize, wrap
from ..tracing.lazy_value import pending_copy
from .transfer import runtime, to_bytes


def pin_memory(x: Tensor, where: DeviceLike = None) -> Tensor:
    """Return ``x`` in memory that ``where`` copies from without being waited for; ``x`` if it is there.

    None: the default device, or the only one that has such memory. The history is that of ``x``. Raises
    ``DeviceError`` where ``x`` is not in the host's memory, or no device that was asked for can.
    """
    target = _device(where)
    memory: object = runtime(x.device)
    if x.device.type != host_type() or not isinstance(memory, SupportsHostMemory):
        raise DeviceError(
            f"pin_memory: a tensor on {x.device} does not lie in the host's memory; move it there first, with"
            f" .to({host_type()!r})."
        )
    if x.size == 0 or is_pinned(x, target):
        return x
    data = _pinning(target).pin(x.nbytes, target.index)
    data[:] = to_bytes(x)
    value = memory.from_memory(data, x.shape, x.dtype, x.device.index)
    return wrap(value, x._vtype.materialized, x._node)


def pinned_for(x: Tensor, where: Device) -> Tensor:
    """Return ``x`` in memory that ``where`` copies from without being waited for, if there is such."""
    can = x.device.type == host_type() and isinstance(where.runtime, SupportsPinnedMemory)
    return pin_memory(x, where) if can else x


def is_pinned(x: Tensor, where: DeviceLike = None) -> bool:
    """Return whether the elements of ``x`` lie, packed, in page-locked memory of ``where``.

    None: of any device that is in use. Other devices are not opened for this.
    """
    if x.device.type != host_type() or x.size == 0:
        return False
    data = to_bytes(x)
    targets = [Device(name) for name in opened()] if where is None else [device(where)]
    return any(
        isinstance(pinning := one.runtime, SupportsPinnedMemory) and pinning.is_pinned(data, one.index)
        for one in targets
    )


def copied_from_pinned(x: Tensor, there: Device) -> Tensor | None:
    """Return ``x`` on ``there`` by a copy that is queued, without a history; None where there is no such."""
    home, far = runtime(x.device), runtime(there)
    if isinstance(far, SupportsPinnedMemory) and x.device.type == host_type():
        value = materialize(x)
        data = home.to_host(value, x.dtype, x.device.index)
        if not len(data) or not far.is_pinned(data, there.index):
            return None
        uploaded = far.upload(data, x.shape, x.dtype, there.index, keep=value)
        return wrap(uploaded, ValueType.of(x.dtype, there))
    if isinstance(home, SupportsPinnedMemory) and isinstance(far, SupportsHostMemory) and x.size:
        data, wait = home.download(materialize(x), x.dtype, x.device.index)
        return _pending(data, wait, far, x.shape, ValueType.of(x.dtype, there))
    return None


def _pending(data: memoryview, wait: Any, far: SupportsHostMemory, shape: Shape, kind: ValueType) -> Tensor:
    def arrival() -> Any:
        wait()
        return far.from_memory(data, shape, kind.dtype, kind.device.index)

    return wrap(pending_copy(shape, arrival), kind.lazy())


def _pinning(where: Device) -> SupportsPinnedMemory:
    pinning: object = where.runtime
    if not isinstance(pinning, SupportsPinnedMemory):
        raise DeviceError(
            f"pin_memory: {where} has no memory of the host that it copies from by itself. Leave the tensor"
            f" where it is: .to({str(where)!r}, non_blocking=True) copies it all the same."
        )
    return pinning


def _device(where: DeviceLike) -> Device:
    """Return the device to pin memory for."""
    if where is not None:
        chosen = device(where)
        _pinning(chosen)
        return chosen
    default = get_default_device()
    able = [default] if _can(default) else [one for name in known_types() if _can(one := Device(name))]
    if len(able) == 1:
        return able[0]
    if able:
        raise DeviceError(
            f"pin_memory: {', '.join(map(str, able))} have page-locked memory, each of its own; name one of"
            f" them: x.pin_memory({able[0].type!r})."
        )
    raise DeviceError(
        f"pin_memory: no device that can be used here has page-locked memory. Known are"
        f" {', '.join(known_types())}; `tensorbus doctor` says what is wrong with them. Without it,"
        f" non_blocking=True is allowed, and copies at once."
    )


def _can(where: Device) -> bool:
    return where.is_available() and isinstance(backend(where.type).runtime, SupportsPinnedMemory)
