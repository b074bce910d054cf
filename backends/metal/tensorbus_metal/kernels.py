"""The kernels of the metal device: generated ones, those of MLX, factorizations on the host."""

from __future__ import annotations

from functools import cache
from typing import Final

from tensorbus.backend_api import KernelTable, from_dialect, host_kernels

from .device import runtime
from .kernels_mlx import kernels as mlx_kernels

FUSED: Final = ("mean", "random_bits", "fold", "max_pool", "take_along_axis", "scatter_along_axis")


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    generated = from_dialect(runtime().compiler, fused=FUSED)
    return {**generated, **host_kernels("metal"), **mlx_kernels(generated)}
