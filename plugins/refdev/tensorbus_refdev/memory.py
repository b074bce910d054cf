"""The memory of a unit: a heap apart from the host's, and the handles that stand for places in it.

A handle is no array: it has no buffer protocol, no ``__array__`` and no length. Whoever takes a value of the
device for one of the host, or the other way round, gets an error instead of wrong numbers.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import DType, OutOfMemoryError, StridedArray, dtypes

Shape = tuple[int, ...]
_LACKING: Final = {dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2}
DTYPES: Final = {d: np.dtype(d.name) for d in dtypes.ALL if d not in _LACKING}
"""What the kernels compute in, by NumPy's names: all but the small floats, which it does not have."""


class Handle:
    """The address of a block in a heap. The block is freed when nothing refers to its handle any more.

    ``failure`` says why the block was never filled, where the work that should have done it failed.
    """

    __slots__ = ("_heap", "address", "failure")

    def __init__(self, heap: Heap, address: int) -> None:
        self._heap = heap
        self.address = address
        self.failure: Exception | None = None

    def __del__(self) -> None:
        self._heap.free(self.address)


class Heap:
    """Blocks of bytes by address, at most ``limit`` bytes in all. Safe in many threads.

    ``make_room`` is called when the limit is reached, before an allocation is refused.
    """

    def __init__(self, name: str, limit: int, make_room: Callable[[], None]) -> None:
        self.name = name
        self.limit = limit
        self._make_room = make_room
        self.allocated = self.peak = 0
        self._blocks: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}
        self._addresses = itertools.count(1)
        self._lock = threading.RLock()  # a handle may die, and lock again, while this thread allocates

    def allocate(self, shape: Shape, dtype: DType) -> StridedArray:
        """Return an array in a new block. Raises ``OutOfMemoryError`` where there is no room for it."""
        nbytes = prod(shape) * dtype.itemsize
        if self.allocated + nbytes > self.limit:
            self._make_room()
        with self._lock:
            if self.allocated + nbytes > self.limit:
                raise OutOfMemoryError(
                    f"{self.name}: no room for {dtype}{list(shape)}, {nbytes} bytes: {self.allocated} of"
                    f" {self.limit} bytes are in use. Let go of some tensors."
                )
            address = next(self._addresses)
            self._blocks[address] = np.empty(nbytes, np.uint8)
            self.allocated += nbytes
            self.peak = max(self.peak, self.allocated)
        return StridedArray.contiguous(Handle(self, address), shape, dtype)

    def free(self, address: int) -> None:
        """Give a block back."""
        with self._lock:
            self.allocated -= self._blocks.pop(address).nbytes

    def owns(self, value: object) -> bool:
        """Return whether ``value`` lies in this heap."""
        return isinstance(value, StridedArray) and getattr(value.buffer, "_heap", None) is self

    def elements(self, value: StridedArray) -> Any:
        """Return the elements as an array, in place. For kernels and copies only."""
        if value.buffer.failure is not None:
            raise value.buffer.failure.with_traceback(None)
        native = DTYPES[value.dtype]
        strides = [step * native.itemsize for step in value.strides]
        block, offset = self._blocks[value.buffer.address], value.offset * native.itemsize
        return np.ndarray(value.shape, native, block, offset, strides)
