"""Programs on OpenCL: generated kernels, and those of the table for what the host computes."""

from __future__ import annotations

from tensorbus.backend_api import FFT, LINALG, DialectLowering

from .device import runtime


def lowering() -> DialectLowering:
    """Return what compiles programs to OpenCL C."""
    return DialectLowering(runtime().compiler, "opencl", {*FFT, *LINALG})
