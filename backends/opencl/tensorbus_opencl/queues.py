"""The queues of a device: their bits, and their work, which is waited for when a queue is gone.

Somebody must wait for the work of a queue that nobody refers to any more, since its memory goes to others.
A ``__del__`` that waits loses the user's Ctrl-C, which Python drops there; so the driver's queue is kept by a
second handle, and whoever next needs queues or memory waits for those whose first one is gone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from itertools import count

import pyopencl as cl
from tensorbus.backend_api import Life

from .shutdown import blocking


class Queue(cl.CommandQueue):
    """A queue, in order and with times; ``bit`` tells it from the other queues of its unit."""

    bit: int

    def finish(self) -> None:
        """Wait for its work."""
        blocking(super().finish)


class Queues:
    """The queues of a unit by their bits; one that is gone stays until its work is done. Thread-safe."""

    def __init__(self, context: cl.Context) -> None:
        self._context = context
        self._lock = threading.RLock()
        self._of_bit: dict[int, tuple[Life, cl.CommandQueue]] = {}
        self._gone: deque[Life] = deque()

    def __contains__(self, bit: int) -> bool:
        return bit in self._of_bit

    def new(self) -> Queue:
        """Return a new queue."""
        self.retire()
        queue = Queue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
        life, second = Life(queue, self._gone.append), cl.CommandQueue.from_int_ptr(queue.int_ptr)
        with self._lock:
            queue.bit = life.users = next(1 << k for k in count() if 1 << k not in self._of_bit)
            self._of_bit[queue.bit] = life, second
        return queue

    def of(self, bits: int) -> list[cl.CommandQueue]:
        """Return the queues that have one of ``bits``."""
        return [queue for bit, (_, queue) in self._items() if bits & bit]

    def others(self, queue: Queue | None) -> Iterator[cl.CommandQueue]:
        """Yield all queues but one."""
        for bit, (_, other) in self._items():
            if queue is None or bit != queue.bit:
                yield other

    def wait(self, but: Queue | None = None) -> None:
        """Wait for the work in every queue, or every other one."""
        self.retire()
        for queue in self.others(but):
            blocking(queue.finish)

    def retire(self) -> None:
        """Wait for the work of the queues that are gone, and let them go; their bits are free again."""
        while self._gone:
            try:
                life = self._gone[0]
            except IndexError:  # another thread was faster
                return
            entry = self._of_bit.get(life.users)
            if entry is not None and entry[0] is life:
                blocking(entry[1].finish)
            with self._lock:
                if self._gone and self._gone[0] is life:
                    if entry is not None and entry[0] is life:
                        self._of_bit.pop(life.users, None)
                    self._gone.popleft()

    def _items(self) -> list[tuple[int, tuple[Life, cl.CommandQueue]]]:
        with self._lock:
            return list(self._of_bit.items())
