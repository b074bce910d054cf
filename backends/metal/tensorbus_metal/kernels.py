"""The kernels of the metal device: generated ones, those of MLX, factorizations on the host."""

from __future__ import annotations

from functools import cache
from typing import Final

from tensorbus.backend_api import KernelTable, from_dialect, host_kernels

from . import kernels_mlx as library
from .device import runtime

FUSED: Final = ("mean", "random_bits", "fold", "max_pool", "take_along_axis", "scatter_along_axis")


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    generated = from_dialect(runtime().compiler, fused=FUSED)
    return {**generated, **host_kernels("metal"), **library.kernels(generated)}
