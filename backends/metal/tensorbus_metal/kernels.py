"""The kernels of the metal device: generated ones, products by MLX, factorizations on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, KernelTable, StridedArray, from_dialect, host_kernels
from tensorbus.backend_api import dtypes as dt

from .device import elements, runtime

FUSED: Final = ("mean", "random_bits", "fold", "max_pool", "take_along_axis", "scatter_along_axis")
PRODUCTS: Final = frozenset({dt.float32})
"""The dtypes that MLX multiplies as exactly as the generated kernels do."""


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    generated = from_dialect(runtime().compiler, fused=FUSED)
    other = generated["matmul"]
    assert isinstance(other, Kernel)
    assert other.prepare is not None
    return {
        **generated,
        **host_kernels("metal"),
        "matmul": Kernel(name="matmul", prepare=_matmul(other.prepare)),
    }


def _matmul(generated: Callable[[Call], Any]) -> Callable[[Call], Any]:
    """Return what multiplies by MLX where it knows the dtype, else by a generated kernel."""

    def prepare(call: Call) -> Any:
        if call.dtypes[0] not in PRODUCTS or call.shapes is None or call.out_shape is None:
            return generated(call)
        if 0 in (*call.out_shape, call.shapes[0][-1]):
            return generated(call)
        import mlx.core as mx

        owner, shape, dtype = runtime(), call.out_shape, call.out_dtype
        start: Any = mx.async_eval  # its annotations are incomplete

        def run(x: StridedArray, y: StridedArray) -> StridedArray:
            a, b = elements(owner, x, mx.float32), elements(owner, y, mx.float32)
            made = owner.pool.of(mx.matmul(a, b, stream=owner.stream))
            start(made.array)
            return StridedArray.contiguous(made, shape, dtype)

        return run

    return prepare
