"""The kernels of the metal device: generated ones, those of MLX, factorizations on the host."""

from __future__ import annotations

from functools import cache

from tensorbus.backend_api import GENERATED_COMPOSITES, KernelTable, from_dialect, host_kernels

from .device import runtime
from .kernels_mlx import kernels as mlx_kernels


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    generated = from_dialect(runtime().compiler, fused=GENERATED_COMPOSITES)
    return {**generated, **host_kernels("metal"), **mlx_kernels(generated)}
