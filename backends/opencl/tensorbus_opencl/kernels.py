"""The kernels of the opencl device: generated, composites fused; factorizations run on the host."""

from __future__ import annotations

from functools import cache

from tensorbus.backend_api import GENERATED_COMPOSITES, KernelTable, from_dialect, host_kernels

from .device import runtime


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    generated = from_dialect(runtime().compiler, fused=GENERATED_COMPOSITES)
    return {**generated, **host_kernels("opencl")}
