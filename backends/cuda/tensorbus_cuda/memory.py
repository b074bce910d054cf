"""Device memory: blocks of CuPy's pool, counted, and an error that says so when there is no room.

CuPy hands freed memory to the next value of the same stream at once, which is right as long as that stream
alone used it. A block that others used makes its stream wait for them before it goes back.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import cupy
from tensorbus.backend_api import MemoryStats, OutOfMemoryError

if TYPE_CHECKING:
    from .device import Unit

LEAST: Final = 16
"""Bytes of the smallest block: an empty value has none."""


class Block:
    """Memory of one unit. It goes back when the last value over it is gone.

    ``stream`` is the one that it was allocated in; ``users`` are the others that were given work with it.
    """

    __slots__ = ("__weakref__", "memory", "nbytes", "pool", "ptr", "stream", "users")

    def __init__(self, memory: Any, nbytes: int, pool: Pool, stream: Any) -> None:
        self.memory = memory
        self.ptr: int = memory.ptr
        self.nbytes = nbytes
        self.pool = pool
        self.stream = stream
        self.users: tuple[Any, ...] = ()

    def used_by(self, stream: Any) -> None:
        """Note that ``stream``, which is not the block's own, was given work with it."""
        if stream not in self.users:
            self.users = (*self.users, stream)

    def __del__(self) -> None:
        if not sys.is_finalizing():  # the driver may be gone before the last values
            self.pool.free(self)


class Pool:
    """The memory of one unit: CuPy's own pool, so that arrays of CuPy in the same program share it."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        # Reentrant: the garbage collector may free a block while this thread holds the lock.
        self._lock = threading.RLock()
        self.allocated = self.peak = 0

    def allocate(self, nbytes: int) -> Block:
        """Return a block of at least ``nbytes`` for the current stream.

        Raises ``OutOfMemoryError``; every value stays valid.
        """
        size = max(nbytes, LEAST)
        stream = self.unit.stream()
        with self.unit.current():
            try:
                memory = cupy.cuda.alloc(size)
            except cupy.cuda.memory.OutOfMemoryError as error:
                raise self._full(nbytes) from error
        with self._lock:
            self.allocated += size
            self.peak = max(self.peak, self.allocated)
        return Block(memory, size, self, stream)

    def adopt(self, array: Any) -> Block:
        """Return a block over the memory of a ``cupy.ndarray`` that somebody else made, and keep it alive."""
        with self._lock:
            self.allocated += array.nbytes
            self.peak = max(self.peak, self.allocated)
        return Block(array.data, array.nbytes, self, self.unit.stream())

    def free(self, block: Block) -> None:
        """Let a block go: its stream waits for those that used it too."""
        with self._lock:
            self.allocated -= block.nbytes
        if block.users:
            with self.unit.current():
                for stream in block.users:
                    block.stream.wait_event(stream.record())
        block.memory = None

    def trim(self) -> None:
        """Give what CuPy keeps for reuse back to the driver."""
        with self.unit.current():
            cupy.get_default_memory_pool().free_all_blocks()

    def stats(self) -> MemoryStats:
        """Return the bytes of values, and what CuPy's pool holds beside them."""
        with self.unit.current():
            held = cupy.get_default_memory_pool().total_bytes()
        return MemoryStats(
            allocated=self.allocated, peak=self.peak, reserved=max(held - self.allocated, 0),
            total=self.unit.total,
        )  # fmt: skip

    def _full(self, nbytes: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"{self.unit.name}: no room for {nbytes:,} bytes: {self.allocated:,} of {self.unit.total:,} are"
            f" in use by tensors. Free tensors, or work in smaller pieces; others may use the GPU too."
        )
