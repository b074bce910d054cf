"""The kernels of the cuda device: generated ones, products by cuBLAS, factorizations on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, KernelTable, StridedArray, from_dialect, host_kernels
from tensorbus.backend_api import dtypes as dt

from .device import runtime

FUSED: Final = ("mean", "random_bits", "fold", "max_pool", "take_along_axis", "scatter_along_axis")
BLAS: Final = frozenset({dt.float16, dt.float32, dt.float64, dt.complex64, dt.complex128})
"""The dtypes that cuBLAS multiplies, through CuPy."""


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    generated = from_dialect(runtime().compiler, fused=FUSED)
    other = generated["matmul"]
    assert isinstance(other, Kernel)
    assert other.prepare is not None
    return {
        **generated,
        **host_kernels("cuda"),
        "matmul": Kernel(name="matmul", prepare=_matmul(other.prepare)),
    }


def _matmul(generated: Callable[[Call], Any]) -> Callable[[Call], Any]:
    """Return what multiplies by cuBLAS where it knows the dtype, else by a generated kernel."""

    def prepare(call: Call) -> Any:
        if call.dtypes[0] not in BLAS or call.out_shape is None or 0 in call.out_shape:
            return generated(call)
        import cupy

        from .arrays import as_cupy, from_cupy

        unit = runtime().units[call.index]

        def run(x: StridedArray, y: StridedArray) -> StridedArray:
            a, b = as_cupy(unit, x), as_cupy(unit, y)
            with unit.current():
                return from_cupy(unit, cupy.matmul(a, b))

        return run

    return prepare
