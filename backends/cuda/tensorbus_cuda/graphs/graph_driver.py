"""The driver's functions for graphs that CuPy does not offer."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, Final

from tensorbus.backend_api import DeviceError

_THESE: Final = 1
"""Dependencies of what is recorded that replace the ones before."""


class GraphDriver:
    """Those functions, by their names."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        pointer = ctypes.c_void_p
        self.launch = self.lib.cuGraphLaunch
        self.launch.argtypes = (pointer, pointer)
        self.change = self.lib.cuGraphExecKernelNodeSetParams
        self.change.argtypes = (pointer, pointer, pointer)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function. Raises ``DeviceError`` naming it."""
        code = getattr(self.lib, name)(*arguments)
        if code:
            raise DeviceError(f"{name} of the CUDA driver returned error {code}.")

    def ends(self, stream: int) -> list[int]:
        """Return the nodes that what is recorded next would follow."""
        return self._recorded(stream)[1]

    def join(self, stream: int, nodes: Sequence[int]) -> int:
        """Return a new node of what is recorded, which does nothing and follows these nodes."""
        graph, _ = self._recorded(stream)
        followed, node = (ctypes.c_void_p * len(nodes))(*nodes), ctypes.c_void_p()
        self.call("cuGraphAddEmptyNode", ctypes.byref(node), graph, followed, ctypes.c_size_t(len(nodes)))
        return int(node.value or 0)

    def _recorded(self, stream: int) -> tuple[ctypes.c_void_p, list[int]]:
        """Return the graph that is recorded, and the nodes that its next would follow."""
        state, number, graph = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p()
        nodes, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        self.call(
            "cuStreamGetCaptureInfo_v2", ctypes.c_void_p(stream), ctypes.byref(state), ctypes.byref(number),
            ctypes.byref(graph), ctypes.byref(nodes), ctypes.byref(count),
        )  # fmt: skip
        return graph, [int(nodes[k] or 0) for k in range(count.value)]

    def follow(self, stream: int, nodes: Sequence[int]) -> None:
        """Let what is recorded next follow these nodes, and no others."""
        followed = (ctypes.c_void_p * max(len(nodes), 1))(*nodes)
        count, flags = ctypes.c_size_t(len(nodes)), ctypes.c_uint(_THESE)
        self.call("cuStreamUpdateCaptureDependencies", ctypes.c_void_p(stream), followed, count, flags)
