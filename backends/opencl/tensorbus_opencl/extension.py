"""The hooks of the opencl device. Imports nothing heavy: PyOpenCL comes with the first use."""

from __future__ import annotations

from tensorbus.backend_api import KernelTable, Lowering, Runtime, hookimpl


@hookimpl
def tensorbus_device(device_type: str) -> Runtime | None:
    """Return the runtime of the OpenCL devices."""
    if device_type != "opencl":
        return None
    from .device import runtime

    return runtime()


@hookimpl
def tensorbus_kernels(device_type: str) -> KernelTable | None:
    """Return the generated kernels."""
    if device_type != "opencl":
        return None
    from .kernels import table

    return table()


@hookimpl
def tensorbus_lowering(device_type: str) -> Lowering | None:
    """Return what compiles programs to OpenCL C."""
    if device_type != "opencl":
        return None
    from .lowering import lowering

    return lowering()
