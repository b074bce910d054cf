"""Device memory: buffers that are kept for reuse, counted, and refused before the device runs out.

A queue runs in order, so what was used by one queue alone can be used by that queue again at once. What
several queues used is kept back until they have passed the point where it was freed.
"""

from __future__ import annotations

from pathlib import Path

import pyopencl as cl
from tensorbus.backend_api import HandleCounter, Life, MemoryStats, OutOfMemoryError

from .queues import Queues

MIN_BYTES = 256


class Block:
    """A buffer of the pool. It goes back when the last value over it is gone.

    ``users`` has the bit of each queue that was given work with it.
    """

    __slots__ = ("__weakref__", "life", "memory", "nbytes", "pool", "users")
    life: Life

    def __init__(self, memory: cl.Buffer, nbytes: int, pool: Pool, users: int) -> None:
        self.memory = memory
        self.nbytes = nbytes
        self.pool = pool
        self.users = users

    def used_by(self, bit: int) -> None:
        """Note that the queue of ``bit`` is given work with it."""
        self.users |= bit
        self.life.users = self.users


class Pool:
    """The memory of one device. Safe in many threads."""

    def __init__(self, context: cl.Context, device: cl.Device, name: str, queues: Queues) -> None:
        """Serve the ``queues`` that there are."""
        self.context = context
        self.name = name
        self.largest = int(device.max_mem_alloc_size)
        self.total = min(
            int(device.global_mem_size), _process_limit() if device.host_unified_memory else 1 << 62
        )
        self._max_kept = self.total // 4
        self._queues = queues
        self._free: dict[tuple[int, int], list[cl.Buffer]] = {}
        self._busy: list[tuple[list[cl.Event], cl.Buffer, int]] = []
        self.used = HandleCounter(self._take_back)
        self.lock = self.used.lock
        self.reserved = 0

    def allocate(self, nbytes: int, bit: int) -> Block:
        """Return a buffer of at least ``nbytes`` for the queue of ``bit``.

        Raises ``OutOfMemoryError``; every value stays valid.
        """
        size = rounded(nbytes)
        with self.lock:
            self.used.collect()
            free = self._free.get((bit, size)) or self._finished(bit, size)
            if free:
                memory = free.pop()
                self.reserved -= size
            else:
                memory = self._create(nbytes, size)
            block = Block(memory, size, self, bit)
            block.life = self.used.add(block, size, memory if size <= self._max_kept else None, bit)
        return block

    def _finished(self, bit: int, size: int) -> list[cl.Buffer]:
        """Hand over what no queue is at work on any more; return what that gives ``bit`` of ``size``."""
        self._queues.retire()
        done = cl.command_execution_status.COMPLETE
        waiting = []
        for events, memory, n in self._busy:
            if all(e.command_execution_status == done for e in events):
                self._free.setdefault((bit, n), []).append(memory)
            else:
                waiting.append((events, memory, n))
        self._busy = waiting
        for key in [key for key in self._free if key[0] not in self._queues]:
            self._free.setdefault((bit, key[1]), []).extend(self._free.pop(key))
        return self._free.get((bit, size), [])

    def _create(self, nbytes: int, size: int) -> cl.Buffer:
        if self.used.allocated + self.reserved + size > self.total:
            self.trim()
        if nbytes > self.largest or self.used.allocated + size > self.total:
            raise self._full(nbytes)
        for last in (False, True):
            try:
                return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, size)
            except (cl.MemoryError, cl.RuntimeError, cl.LogicError) as error:
                if last:
                    raise self._full(nbytes) from error
                self.trim()
        raise AssertionError

    def _full(self, nbytes: int) -> OutOfMemoryError:
        return OutOfMemoryError(
            f"{self.name}: no room for {nbytes:,} bytes: {self.used.allocated:,} of {self.total:,} are in"
            f" use, and one value may have {self.largest:,}. Free tensors, or work in smaller pieces."
        )

    def _take_back(self, life: Life) -> None:
        """Take the buffer of a block that is gone: for reuse, or to the driver, which waits for its work.

        A large one that is not worth keeping went to the driver with its block.
        """
        memory, size, users = life.memory, life.nbytes, life.users
        if memory is None or self.reserved + size > self._max_kept:
            return
        if users & (users - 1):
            at_work = self._queues.of(users)
            self._busy.append(([cl.enqueue_marker(queue) for queue in at_work], memory, size))
        else:
            self._free.setdefault((users, size), []).append(memory)
        self.reserved += size

    def trim(self) -> None:
        """Give what is kept for reuse back to the driver."""
        with self.lock:
            self.used.collect()
            for free in self._free.values():
                for memory in free:
                    memory.release()
            for _, memory, _ in self._busy:
                memory.release()
            self._free.clear()
            self._busy.clear()
            self.reserved = 0

    def stats(self) -> MemoryStats:
        """Return the bytes in use and kept."""
        with self.lock:
            allocated = self.used.allocated
            return MemoryStats(
                allocated=allocated, peak=self.used.peak, reserved=self.reserved, total=self.total
            )


def rounded(nbytes: int) -> int:
    """Return the size of the block for ``nbytes``: few sizes, so that blocks fit again.

    >>> rounded(1), rounded(1000), rounded(1_100_000)
    (256, 1024, 1179648)
    """
    if nbytes <= 1 << 20:
        return max(MIN_BYTES, 1 << (nbytes - 1).bit_length())
    step = 1 << (nbytes.bit_length() - 4)
    return -(-nbytes // step) * step


def _process_limit() -> int:
    """Return the memory that this process may use, where the system limits it."""
    for place in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(place).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return 1 << 62
