"""The way out by DLPack: memory shared with other libraries (dmlc/dlpack, array API standard 2025.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError
from ..plugins import dlpack_types
from ..tensor.tensor import Tensor, materialize
from .host_array import host_device
from .lent_memory import lend
from .transfer import runtime, to

if TYPE_CHECKING:
    from ..backend_interface import capabilities

_EXTENSION_DEVICE: Final = 12
"""DLPack's ``kDLExtDev``: a device that has no type of its own there."""


def to_dlpack(
    x: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[Any, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Serve ``__dlpack__``: on the tensor's own device, or on the host.

    On the host it is the tensor's memory where the host can read that in its place, else a copy. Raises
    ``BufferError`` for any other device, for ``copy=False`` where a copy is needed, and for recorded tensors.
    """
    if stream is not None:
        _check_stream(x, stream)
    _check_pairs(max_version=max_version, dl_device=dl_device)
    max_version = None if max_version is None else (max_version[0], max_version[1])  # a list too
    if not any(copy is known for known in (True, False, None)):
        raise ArgumentError(f"__dlpack__: 'copy' must be True, False or None, got {type(copy).__name__}.")
    if x.requires_grad:
        raise BufferError("a tensor that requires a gradient is not exported; use .detach() first.")
    here = dlpack_device(x)
    target = (
        here if dl_device is None else (int(getattr(dl_device[0], "value", dl_device[0])), int(dl_device[1]))
    )
    host = host_device()
    if x.device != host and target == (code := _exporter(host).dlpack_device(None, 0)):
        shared = None if copy else _host_view(x, required=copy is False)
        if shared is None:
            return to_dlpack(to(x, host), max_version=max_version, copy=copy)
        array = _host(host).from_numpy(shared, x.dtype, False)
        return _exporter(host).to_dlpack(array, 0, max_version=max_version, dl_device=code, copy=copy)
    if target != here:
        raise BufferError(
            f"__dlpack__: a tensor on {x.device}, DLPack device {here}, was asked for on {target};"
            f" move it with .to(device)."
        )
    array = lend(x) if not copy else None
    lent = {} if array is None else {"lent": True}
    value = materialize(x) if array is None else array
    return _exporter(x.device).to_dlpack(
        value, x.device.index, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy, **lent
    )


def _check_stream(x: Tensor, stream: Any) -> None:
    """Raise ``ArgumentError`` for a stream that is no number, or where there are none."""
    from ..backend_interface import capabilities
    from ..ops.argument_kinds import shown

    if not isinstance(runtime(x.device), capabilities.SupportsStreams):
        raise ArgumentError(
            f"__dlpack__: 'stream' must be None for a tensor on {x.device}, which has no streams, got"
            f" {shown(stream)}."
        )
    if not hasattr(type(stream), "__index__"):
        raise ArgumentError(
            f"__dlpack__: 'stream' must be None or an integer, as the reader's library numbers its streams,"
            f" got {shown(stream)}."
        )


def _check_pairs(**options: Any) -> None:
    """Raise ``ArgumentError`` for a version, or a device, that is no pair of integers."""
    for name, value in options.items():
        if value is None:
            continue
        parts = value if isinstance(value, (tuple, list)) and len(value) == 2 else (None,)
        if not all(hasattr(type(part), "__index__") for part in parts):
            from ..ops.argument_kinds import shown

            raise ArgumentError(
                f"__dlpack__: {name!r} must be None or a tuple of two integers, got {shown(value)}."
            )


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Serve ``__dlpack_device__``: also for a device that exports to the host only."""
    from ..backend_interface import capabilities

    exporter: object = runtime(x.device)
    if isinstance(exporter, capabilities.SupportsDLPack):
        return exporter.dlpack_device(materialize(x), x.device.index)
    codes = [code for code, name in dlpack_types().items() if name == x.device.type]
    if codes:
        return codes[0], x.device.index
    if isinstance(exporter, capabilities.SupportsHostViews):
        return _exporter(host_device()).dlpack_device(None, 0)
    return _EXTENSION_DEVICE, x.device.index


class _OwnedArray:
    """A host array, as NumPy takes it, that keeps the value whose memory it is.

    Its elements are bytes without a meaning, since array interfaces name no small floats.
    """

    def __init__(self, array: Any, value: Any) -> None:
        described = {k: v for k, v in array.__array_interface__.items() if k != "descr"}
        self.__array_interface__ = {**described, "typestr": f"|V{array.itemsize}"}
        self.owners = array, value


def _host(where: Any) -> capabilities.SupportsHostArrays:
    host_runtime: Any = runtime(where)
    typed: capabilities.SupportsHostArrays = host_runtime
    return typed


def _exporter(where: Any) -> capabilities.SupportsDLPack:
    from ..backend_interface import capabilities

    exporter: object = runtime(where)
    if not isinstance(exporter, capabilities.SupportsDLPack):
        raise BufferError(f"{where} does not export DLPack; copy the tensor with .numpy() or .to(device).")
    return exporter


def _host_view(x: Tensor, *, required: bool) -> Any:
    """Return the elements in their place as a host array, or None where that cannot be."""
    from ..backend_interface import capabilities

    viewer: object = runtime(x.device)
    why = f"the host cannot read the memory of {x.device} in its place"
    if isinstance(viewer, capabilities.SupportsHostViews):
        try:
            value = materialize(x)
            return _OwnedArray(viewer.host_view(value, x.device.index), value)
        except BufferError as error:
            why = str(error)
    if required:
        raise BufferError(
            f"__dlpack__: {why}, so {x.device} to {host_device()} needs a copy; drop copy=False."
        )
    return None
