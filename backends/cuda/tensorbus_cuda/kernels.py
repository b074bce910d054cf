"""The eager table: for each op its candidates in order, NVIDIA's libraries before generated ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from tensorbus.backend_api import GENERATED_COMPOSITES, Call, Kernel, KernelTable, from_dialect

from .attention.kernels_attention import attention_kernels
from .convolution.kernels_convolution import convolution_kernels
from .device import runtime
from .gemm.kernels_matmul import matmul_kernels
from .gemm.kernels_matmul_epilogue import epilogue_kernels
from .gemm.kernels_scaled_matmul import scaled_matmul_kernels
from .kernels_cupy import kernels as cupy_kernels
from .sort.kernels_sort import sort_kernels

Group = Mapping[str, Kernel | Sequence[Kernel]]


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    generated = from_dialect(runtime().compiler, fused=GENERATED_COMPOSITES)

    def generated_kernel(op: str) -> Kernel:
        kernel = generated[op]
        assert isinstance(kernel, Kernel)
        return kernel

    def prepare_generated(op: str) -> Callable[[Call], Any]:
        kernel = generated_kernel(op)
        assert kernel.prepare is not None
        return kernel.prepare

    groups: tuple[Group, ...] = (
        cupy_kernels(),
        matmul_kernels(generated_kernel("matmul"), prepare_generated),
        scaled_matmul_kernels(prepare_generated),
        epilogue_kernels(),
        attention_kernels(),
        convolution_kernels(),
        sort_kernels(generated_kernel),
    )
    candidates: dict[str, Kernel | Sequence[Kernel]] = {}
    for group in groups:
        for op, entry in group.items():
            assert op not in candidates, f"two groups have kernels for {op}"
            candidates[op] = entry
    return {**generated, **candidates}
