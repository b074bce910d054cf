"""Page-locked memory of the host, and copies from and to it that the host does not wait for.

What a copy reads or writes is held until an event behind it is reached: the pool knows nothing of copies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
from tensorbus.backend_api import OutOfMemoryError, Reports, StridedArray, WeakValues

if TYPE_CHECKING:
    from ..memory import Block
    from ..unit import Unit


class Pinned:
    """The pinned memory that was made for one GPU. Safe in many threads."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._lock = threading.RLock()
        self._blocks: WeakValues[int, Any] = WeakValues()
        self._copies: list[tuple[Any, Any]] = []

    def allocate(self, nbytes: int) -> memoryview:
        """Return new memory. Raises ``OutOfMemoryError``."""
        unit = self._unit
        try:
            with unit.current():
                memory = cupy.cuda.alloc_pinned_memory(nbytes)
        except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
            raise OutOfMemoryError(
                f"{unit.name}: no room for {nbytes:,} bytes of pinned memory of the host: {error}. Let go of"
                f" pinned tensors, or leave large ones where they are."
            ) from error
        array: Any = np.frombuffer(memory, np.uint8, nbytes)
        with self._lock:
            self._blocks[array.ctypes.data] = array
        return memoryview(array)

    def has(self, data: memoryview) -> bool:
        """Return whether all of ``data`` lies in such memory."""
        start = np.frombuffer(data, np.uint8).ctypes.data
        with self._lock:
            blocks = self._blocks.items()
        return any(at <= start and start + len(data) <= at + block.nbytes for at, block in blocks)

    def upload(self, data: memoryview, keep: Any) -> Block:
        """Queue a copy of ``data`` into a new block; ``keep`` is held until it is done."""
        unit = self._unit
        stream, block = unit.stream(), unit.pool.allocate(len(data))
        with unit.current():
            block.memory.copy_from_host_async(np.frombuffer(data, np.uint8).ctypes.data, len(data), stream)
            self._hold(stream.record(), (keep, data, block))
        return block

    def download(self, value: StridedArray, reports: Reports) -> tuple[memoryview, Callable[[], None]]:
        """Queue a copy of a packed value; return its memory, and what waits and raises what went wrong."""
        unit = self._unit
        stream, data = unit.stream(), self.allocate(value.nbytes)
        if value.buffer.stream is not stream:
            value.buffer.used_by(stream)
        with unit.current():
            value.buffer.memory.copy_to_host_async(
                np.frombuffer(data, np.uint8).ctypes.data, value.nbytes, stream
            )
            event = stream.record()
            self._hold(event, (data, value))

        def wait() -> None:
            unit.wait_for(event)
            unit.check(reports)

        return data, wait

    def release(self) -> None:
        """Let go of what copies held that are done: other threads may have queued some."""
        with self._lock:
            self._copies = [copy for copy in self._copies if not copy[0].done]

    def _hold(self, event: Any, what: Any) -> None:
        self.release()
        with self._lock:
            self._copies.append((event, what))
