"""The kernels of the cuda device: generated ones, and those of NVIDIA's libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, KernelTable, from_dialect

from . import kernels_cupy as namespace
from .attention import kernels_attention as attention
from .convolution import kernels_convolution as convolution
from .device import runtime
from .gemm import kernels_matmul as products
from .gemm import kernels_matmul_8bit as bytewise
from .gemm import kernels_matmul_epilogue as sums
from .gemm import kernels_scaled_matmul as scaled
from .sort import kernels_sort as sorting

FUSED: Final = ("mean", "random_bits", "fold", "max_pool", "take_along_axis", "scatter_along_axis")


@cache
def table() -> KernelTable:
    """Return the table: op names to kernels."""
    generated = from_dialect(runtime().compiler, fused=FUSED)

    def other(op: str) -> Callable[[Call], Any]:
        kernel = generated[op]
        assert isinstance(kernel, Kernel)
        assert kernel.prepare is not None
        return kernel.prepare

    pad = other("pad")
    matmul = bytewise.eager(products.eager(other("matmul")), pad, other("cast"))
    return {
        **generated,
        **namespace.kernels(),
        "matmul": Kernel(name="matmul", prepare=matmul, out=products.into),
        scaled.NAME: Kernel(
            name="scaled", prepare=scaled.eager(pad), out=scaled.into(pad), supports=scaled.supports
        ),
        sums.NAME: Kernel(name="epilogue", prepare=sums.prepare, out=sums.into, supports=sums.supports),
        **{
            op: Kernel(
                name="cudnn", prepare=attention.prepare, out=attention.into, supports=attention.supports
            )
            for op in (attention.NAME, attention.GRADIENTS)
        },
        **{
            op: Kernel(
                name="cudnn",
                prepare=convolution.prepare,
                out=convolution.into,
                supports=convolution.supports,
            )
            for op in convolution.OPS
        },
        **{op: Kernel(name="sort", prepare=sorting.prepared(other(op))) for op in ("sort", "argsort")},
    }
