"""The hooks of the cuda device. Imports nothing heavy: CuPy comes with the first use."""

from __future__ import annotations

from tensorbus.backend_api import KernelTable, Lowering, Runtime, hookimpl


@hookimpl
def tensorbus_device(device_type: str) -> Runtime | None:
    """Return the runtime of the NVIDIA GPUs. Raises ``DeviceUnavailableError``, saying what is missing."""
    if device_type != "cuda":
        return None
    from .device import runtime

    return runtime()


@hookimpl
def tensorbus_kernels(device_type: str) -> KernelTable | None:
    """Return the generated kernels, and those of CuPy's libraries."""
    if device_type != "cuda":
        return None
    from .kernels import table

    return table()


@hookimpl
def tensorbus_lowering(device_type: str) -> Lowering | None:
    """Return what compiles programs to CUDA C++, with products by the library and sorts by block."""
    if device_type != "cuda":
        return None
    from .lowering import CudaLowering

    return CudaLowering()
