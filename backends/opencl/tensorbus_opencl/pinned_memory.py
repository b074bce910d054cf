"""Page-locked memory of the host, and copies from and to it that go on while the host works.

It is memory of buffers that the driver allocates where the device reaches it, mapped for as long as somebody
has it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
from tensorbus.backend_api import OutOfMemoryError, Reports, StridedArray, WeakValues

from .shutdown import blocking

if TYPE_CHECKING:
    from .device import Unit
    from .memory import Block
    from .queues import Queue

_mapped: Any = cl.enqueue_map_buffer
"""Its stubs want an instance where it takes a dtype."""


class Pinned:
    """The pinned memory of one unit. Safe in many threads."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._lock = threading.RLock()
        self._blocks: WeakValues[int, Any] = WeakValues()
        self._copies: list[tuple[cl.Event, Any]] = []

    def allocate(self, nbytes: int) -> memoryview:
        """Return new memory. Raises ``OutOfMemoryError``."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        both = cl.map_flags.READ | cl.map_flags.WRITE
        unit = self._unit
        try:
            buffer = cl.Buffer(unit.context, flags, nbytes)
            array, _ = blocking(_mapped, unit.default, buffer, both, 0, (nbytes,), np.uint8, is_blocking=True)
        except (cl.MemoryError, cl.RuntimeError) as error:
            raise OutOfMemoryError(
                f"{unit.name}: no room for {nbytes:,} bytes of pinned memory: {error}. Let go of"
                f" pinned tensors, or leave large ones where they are."
            ) from error
        self._blocks[array.ctypes.data] = array
        return memoryview(array)

    def has(self, data: memoryview) -> bool:
        """Return whether all of ``data`` lies in such memory."""
        start = np.frombuffer(data, np.uint8).ctypes.data
        return any(
            base <= start and start + len(data) <= base + block.nbytes for base, block in self._blocks.items()
        )

    def _copy(self, queue: Queue, target: Any, source: Any, keep: Any) -> cl.Event:
        event = cl.enqueue_copy(queue, target, source, is_blocking=False)
        queue.flush()
        done = cl.command_execution_status.COMPLETE
        with self._lock:
            self._copies = [c for c in self._copies if c[0].command_execution_status != done]
            self._copies.append((event, keep))
        return event

    def upload(self, data: memoryview, keep: Any) -> Block:
        """Queue a copy of ``data`` into a new block; ``keep`` is held until it is done."""
        queue = self._unit.queue()
        block = self._unit.pool.allocate(len(data), queue.bit)
        self._copy(queue, block.memory, np.frombuffer(data, np.uint8), (block, keep))
        return block

    def download(self, value: StridedArray, reports: Reports) -> tuple[memoryview, Callable[[], None]]:
        """Queue a copy of a packed value; return its memory, and what waits and raises what went wrong."""
        unit, data = self._unit, self.allocate(value.nbytes)
        event = self._copy(unit.queue(), np.frombuffer(data, np.uint8), value.buffer.memory, (data, value))

        def wait() -> None:
            blocking(event.wait)
            unit.check(reports)

        return data, wait
