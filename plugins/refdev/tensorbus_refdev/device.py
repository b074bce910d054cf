"""The device: two units, each with a heap and a queue of work, and the runtime that tensorbus talks to."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import tensorbus.backend_api as api
from tensorbus.backend_api import DeviceProperties, DType, MemoryStats, StridedArray

from .memory import DTYPES, Heap, Shape

MAX_QUEUED: Final = 32
"""How many kernels may wait: what waits keeps its operands in memory."""


class Unit:
    """One unit. Work is queued, and run in order when somebody waits for it or when much has gathered."""

    def __init__(self, index: int) -> None:
        self.name = f"refdev:{index}"
        self.heap = Heap(self.name, int(os.environ.get("TENSORBUS_REFDEV_MEMORY") or 1 << 30), self.drain)
        self._work: deque[Callable[[], None]] = deque()
        self.failure: Exception | None = None
        self._lock = threading.RLock()

    def launch(
        self, op: str, compute: Callable[..., Any], values: tuple[Any, ...], shape: Shape, dtype: DType
    ) -> StridedArray:
        """Queue a kernel; return its result, whose elements are there once the kernel has run."""
        for value in values:
            if not (self.heap.owns(value) or isinstance(value, bool | int | float | complex)):
                raise TypeError(f"{op} takes values of {self.name} and Python scalars, got {value!r}")
        with self._lock:
            out = self.heap.allocate(shape, dtype)
            self._work.append(partial(self._run, op, compute, values, out))
            if len(self._work) >= MAX_QUEUED:
                self.drain()
        return out

    def drain(self) -> None:
        """Run all queued work. What fails is kept for whoever waits or reads."""
        with self._lock, np.errstate(all="ignore"):
            while self._work:
                self._work[0]()  # an interrupt leaves it in the queue, to be run again
                self._work.popleft()

    def _run(self, op: str, compute: Callable[..., Any], values: tuple[Any, ...], out: StridedArray) -> None:
        operands = [value for value in values if isinstance(value, StridedArray)]
        failure = next((value.buffer.failure for value in operands if value.buffer.failure), None)
        if failure is None:
            try:
                arrays = [self.heap.elements(v) if isinstance(v, StridedArray) else v for v in values]
                self.heap.elements(out)[...] = compute(*arrays)
            except Exception as error:
                kind = api.IndexingError if isinstance(error, IndexError) else api.DeviceError
                failure = kind(f"{op} on {self.name} failed: {type(error).__name__}: {error}")
                failure.__cause__ = error
                self.failure = self.failure or failure
        out.buffer.failure = failure


UNITS: Final = (Unit(0), Unit(1))


class RefdevRuntime:
    """The functions that every device owes. Copies from one unit to the other pass through the host."""

    def device_count(self) -> int:
        """Return how many units there are. This is the probe: a real device asks its driver, and raises."""
        return len(UNITS)

    def properties(self, index: int) -> DeviceProperties:
        """Describe a unit."""
        return DeviceProperties(
            name="reference device", memory=UNITS[index].heap.limit, dtypes=frozenset(DTYPES)
        )

    def from_host(self, data: memoryview, shape: Shape, dtype: DType, index: int) -> StridedArray:
        """Copy C-ordered bytes into a new value."""
        out = UNITS[index].heap.allocate(shape, dtype)
        UNITS[index].heap.elements(out)[...] = np.frombuffer(data, DTYPES[dtype]).reshape(shape)
        return out

    def to_host(self, value: StridedArray, dtype: DType, index: int) -> memoryview:
        """Return the C-ordered bytes of a value, or raise the error of the work that should have made it."""
        return memoryview(self.host_view(value, index).tobytes())

    def host_view(self, value: StridedArray, index: int) -> Any:
        """Return the elements in their place. Optional: for devices whose memory the host can read."""
        unit = UNITS[index]
        unit.drain()
        if value.buffer.failure is unit.failure:
            unit.failure = None
        return unit.heap.elements(value)

    def synchronize(self, index: int) -> None:
        """Wait for all work; raise the first error since the last call."""
        unit = UNITS[index]
        unit.drain()
        failure, unit.failure = unit.failure, None
        if failure is not None:
            raise failure

    def put_back_read_error(self, error: Exception, index: int) -> None:
        """Raise an error at the next wait, unless there is one already."""
        UNITS[index].failure = UNITS[index].failure or error

    def memory_stats(self, index: int) -> MemoryStats:
        """Return the memory statistics of a unit."""
        heap = UNITS[index].heap
        return MemoryStats(allocated=heap.used.allocated, peak=heap.used.peak, total=heap.limit)

    def reset_peak_memory_stats(self, index: int) -> None:
        """Make the peak equal to what is allocated now."""
        UNITS[index].heap.used.reset_peak()
