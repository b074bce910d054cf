"""Programs on Metal: generated kernels, and calls of MLX's own functions."""

from __future__ import annotations

from tensorbus.backend_api import FFT, LINALG, DialectLowering

from .device import runtime
from .kernels_mlx import ATTENTION


def lowering() -> DialectLowering:
    """Return what compiles programs to the Metal Shading Language."""
    always = {"matmul", "conv", "conv_transpose", *FFT, *LINALG}
    return DialectLowering(runtime().compiler, "metal", always, served={ATTENTION})
