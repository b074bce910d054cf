"""The lowering of programs to CUDA C++, with calls of libraries for what these do better."""

from __future__ import annotations

from typing import Final

from tensorbus.backend_api import FFT, LINALG, DialectLowering

from .attention import kernels_attention
from .convolution import kernels_convolution
from .device import runtime
from .gemm import kernels_matmul_epilogue, kernels_scaled_matmul

LIBRARY: Final = frozenset({"matmul", "sort", "argsort", *FFT, *LINALG})
SERVED: Final = frozenset(
    {
        kernels_attention.NAME,
        kernels_attention.GRADIENTS,
        kernels_scaled_matmul.NAME,
        kernels_matmul_epilogue.NAME,
        *kernels_convolution.OPS,
    }
)


class CudaLowering(DialectLowering):
    """The lowering of NVIDIA GPUs: what cuDNN serves is cuDNN's where it serves all of a program's.

    Sums behind products are cuBLASLt's wherever it serves them.
    """

    def __init__(self) -> None:
        super().__init__(runtime().compiler, "cuda", LIBRARY, SERVED)
