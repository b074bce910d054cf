"""How programs are compiled: to CUDA C++, with calls of libraries for what these do better."""

from __future__ import annotations

from typing import Final

from tensorbus.backend_api import FFT, LINALG, DialectLowering

from . import attention
from .device import runtime

LIBRARY: Final = frozenset({"matmul", "sort", "argsort", *FFT, *LINALG})
SERVED: Final = frozenset({attention.NAME, attention.GRADIENTS})


class CudaLowering(DialectLowering):
    """The lowering of NVIDIA GPUs: attention is cuDNN's in programs in which it serves all of it."""

    def __init__(self) -> None:
        super().__init__(runtime().compiler, "cuda", LIBRARY, SERVED)
