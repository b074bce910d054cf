"""The memory of a unit: a heap apart from the host's, and the handles that stand for places in it.

A handle is no array: it has no buffer protocol, no ``__array__`` and no length. Whoever takes a value of the
device for one of the host, or the other way round, gets an error instead of wrong numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import DType, HandleCounter, OutOfMemoryError, StridedArray, dtypes

Shape = tuple[int, ...]
_LACKING: Final = {dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2}
DTYPES: Final = {d: np.dtype(d.name) for d in dtypes.ALL if d not in _LACKING}
"""What the kernels compute in, by NumPy's names: all but the small floats, which it does not have."""


class Handle:
    """The address of a block in a heap. The block is freed when nothing refers to its handle any more.

    ``failure`` says why the block was never filled, where the work that should have done it failed.
    """

    __slots__ = ("__weakref__", "_block", "_heap", "address", "failure")

    def __init__(self, heap: Heap, address: int, nbytes: int) -> None:
        self._heap = heap
        self._block = np.empty(nbytes, np.uint8)
        self.address = address
        self.failure: Exception | None = None


class Heap:
    """Blocks of bytes by address, at most ``limit`` bytes in all: ``used`` counts them. Safe in many threads.

    ``make_room`` is called when the limit is reached, before an allocation is refused.
    """

    def __init__(self, name: str, limit: int, make_room: Callable[[], None]) -> None:
        self.name = name
        self.limit = limit
        self._make_room = make_room
        self.used = HandleCounter()
        self._addresses = itertools.count(1)

    def allocate(self, shape: Shape, dtype: DType) -> StridedArray:
        """Return an array in a new block. Raises ``OutOfMemoryError`` where there is no room for it."""
        nbytes = prod(shape) * dtype.itemsize
        if self.used.allocated + nbytes > self.limit:
            self._make_room()
        with self.used.lock:
            if self.used.allocated + nbytes > self.limit:
                raise OutOfMemoryError(
                    f"{self.name}: no room for {dtype}{list(shape)}, {nbytes} bytes: {self.used.allocated} of"
                    f" {self.limit} bytes are in use. Let go of some tensors."
                )
            handle = Handle(self, next(self._addresses), nbytes)
            self.used.add(handle, nbytes)
        return StridedArray.contiguous(handle, shape, dtype)

    def owns(self, value: object) -> bool:
        """Return whether ``value`` lies in this heap."""
        return isinstance(value, StridedArray) and getattr(value.buffer, "_heap", None) is self

    def elements(self, value: StridedArray) -> Any:
        """Return the elements as an array, in place. For kernels and copies only."""
        if value.buffer.failure is not None:
            raise value.buffer.failure.with_traceback(None)
        native = DTYPES[value.dtype]
        strides = [step * native.itemsize for step in value.strides]
        block, offset = value.buffer._block, value.offset * native.itemsize
        return np.ndarray(value.shape, native, block, offset, strides)
