"""The memory that a call takes beyond what was in use before it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import tensorbus as tb


def peak_bytes(device: str, run: Callable[[], object]) -> int:
    """Return the bytes at the peak of ``run()``, which is called once before, beyond those in use before it.

    Where a device counts all of a process, as the host does, what Python and NumPy allocate is counted.
    """
    where = tb.device(device)
    run()
    where.synchronize()
    if where.memory_stats().scope == "process":
        tracemalloc.start()
        try:
            run()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    before = where.memory_stats().allocated
    where.reset_peak_memory_stats()
    run()
    where.synchronize()
    return where.memory_stats().peak - before
