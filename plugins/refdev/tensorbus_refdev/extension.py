"""The hooks of the package. Imports nothing heavy: that comes with the first use."""

from __future__ import annotations

from tensorbus.backend_api import KernelTable, Runtime, hookimpl


@hookimpl
def tensorbus_device(device_type: str) -> Runtime | None:
    """Return the runtime. Drivers are loaded here; what they raise is shown as the reason."""
    if device_type != "refdev":
        return None
    from .device import RefdevRuntime

    return RefdevRuntime()


@hookimpl
def tensorbus_kernels(device_type: str) -> KernelTable | None:
    """Return the kernels."""
    if device_type != "refdev":
        return None
    from .kernels import TABLE

    return TABLE
