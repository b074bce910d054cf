"""The way out by DLPack: memory shared with other libraries (dmlc/dlpack, array API standard 2025.12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .interchange import host_device, runtime, to
from .plugins import dlpack_types
from .tensor import Tensor, settle

if TYPE_CHECKING:
    from . import capabilities

_EXTENSION_DEVICE: Final = 12
"""DLPack's ``kDLExtDev``: a device that has no type of its own there."""


def _dlpack(x: Tensor) -> capabilities.SupportsDLPack:
    from . import capabilities

    found: object = runtime(x.device)
    if not isinstance(found, capabilities.SupportsDLPack):
        raise BufferError(f"{x.device} does not export DLPack; copy the tensor with .numpy() or .to(device).")
    return found


def to_dlpack(
    x: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[Any, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Serve ``__dlpack__``. The host is the only other device that tensors are exported to, by a copy."""
    if x.requires_grad:
        raise BufferError("a tensor that requires a gradient is not exported; use .detach() first.")
    if dl_device is not None:
        asked = (int(getattr(dl_device[0], "value", dl_device[0])), int(dl_device[1]))
        host = host_device()
        if x.device != host and asked == runtime(host).dlpack_device(None, 0):  # type: ignore[attr-defined]
            if copy is False:
                raise BufferError(f"{x.device} to {host} needs a copy; drop copy=False.")
            return to_dlpack(to(x, host), max_version=max_version)
        if asked != dlpack_device(x):
            raise BufferError(
                f"__dlpack__: a tensor on {x.device}, DLPack device {dlpack_device(x)}, was asked for on"
                f" {asked}; move it with .to(device)."
            )
    return _dlpack(x).to_dlpack(
        settle(x), x.device.index, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
    )


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """Serve ``__dlpack_device__``: also for a device that exports to the host only, by a copy."""
    from . import capabilities

    found: object = runtime(x.device)
    if isinstance(found, capabilities.SupportsDLPack):
        return found.dlpack_device(settle(x), x.device.index)
    codes = [code for code, name in dlpack_types().items() if name == x.device.type]
    return (codes[0] if codes else _EXTENSION_DEVICE, x.device.index)
