"""The hooks of the metal device. Imports nothing heavy: MLX comes with the first use."""

from __future__ import annotations

from tensorbus.backend_api import KernelTable, Lowering, Runtime, hookimpl


@hookimpl
def tensorbus_device(device_type: str) -> Runtime | None:
    """Return the runtime of the Apple GPU. Raises ``DeviceUnavailableError``, saying what is missing."""
    if device_type != "metal":
        return None
    from .device import runtime

    return runtime()


@hookimpl
def tensorbus_kernels(device_type: str) -> KernelTable | None:
    """Return the generated kernels, and those of MLX."""
    if device_type != "metal":
        return None
    from .kernels import table

    return table()


@hookimpl
def tensorbus_lowering(device_type: str) -> Lowering | None:
    """Return what compiles programs to the Metal Shading Language, with calls of MLX's own functions."""
    if device_type != "metal":
        return None
    from .lowering import lowering

    return lowering()
