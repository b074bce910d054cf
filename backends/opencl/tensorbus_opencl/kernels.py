"""The kernels of the opencl device, all of them generated; composites are fused."""

from __future__ import annotations

from functools import cache

from tensorbus.backend_api import KernelTable, from_dialect

from .device import runtime

FUSED = (
    "sigmoid relu silu softplus gelu_erf gelu_tanh logaddexp square reciprocal rsqrt log10 mean softmax"
    " log_softmax random_bits fold".split()
)


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    return from_dialect(runtime().compiler, fused=FUSED)
