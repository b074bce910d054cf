"""The hooks of the cpu device. Imports nothing heavy: NumPy comes with the first use."""

from __future__ import annotations

from tensorbus.backend_api import KernelTable, Lowering, Runtime, hookimpl


@hookimpl
def tensorbus_device(device_type: str) -> Runtime | None:
    """Return the runtime of the host's processor."""
    if device_type != "cpu":
        return None
    from .device import CpuRuntime

    return CpuRuntime()


@hookimpl
def tensorbus_kernels(device_type: str) -> KernelTable | None:
    """Return the NumPy kernels."""
    if device_type != "cpu":
        return None
    from .kernels import TABLE

    return TABLE


@hookimpl
def tensorbus_lowering(device_type: str) -> Lowering | None:
    """Return what compiles programs to C."""
    if device_type != "cpu":
        return None
    from .native.program_disk_cache import CachedLowering

    return CachedLowering()
