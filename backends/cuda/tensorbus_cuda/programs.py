"""How programs are compiled: to CUDA C++, with calls of libraries for what these do better."""

from __future__ import annotations

from tensorbus.backend_api import FFT, LINALG, DialectLowering, Executable, Order

from . import attention
from .device import runtime

LIBRARY = frozenset({"matmul", "sort", "argsort", *FFT, *LINALG})


class CudaLowering(DialectLowering):
    """The lowering of NVIDIA GPUs: attention is cuDNN's in programs in which it serves all of it."""

    def __init__(self) -> None:
        super().__init__(runtime().compiler, "cuda", LIBRARY)
        self._attending = DialectLowering(runtime().compiler, "cuda", LIBRARY | {attention.NAME})

    def compile(self, order: Order) -> Executable:
        """Return the executable of a program."""
        if attention.served(order.graph, order.index):
            return self._attending.compile(order)
        return super().compile(order)
