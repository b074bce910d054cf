"""The server's table: keys with values, some for a time, queues, and who waits for what."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tensorbus.backend_api import store_sum


class Table:
    """Keys, queues and waiters. Only the server's loop touches it, so each step is one for all clients."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._ends: dict[str, float] = {}
        self._queues: dict[str, deque[bytes]] = {}
        self._waiters: dict[str, dict[Waiter, None]] = {}

    def set(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Put a value under a key, for ``ttl`` seconds where they are given."""
        self._values[key] = value
        self._ends.pop(key, None)
        if ttl is not None:
            self._ends[key] = time.monotonic() + ttl
        self._wake(key)

    def look(self, key: str) -> bytes | None:
        """Return a key's value as it is now."""
        end = self._ends.get(key)
        if end is not None and end <= time.monotonic():
            del self._ends[key]
            self._values.pop(key, None)
        return self._values.get(key)

    def add(self, key: str, amount: int) -> int:
        """Add to the number under a key."""
        total = store_sum(key, self.look(key), amount)
        self._values[key] = str(total).encode()  # for the time that is left, if any
        self._wake(key)
        return total

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return all(self.look(key) is not None for key in keys)

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put a value where the expected one is there."""
        current = self.look(key) or b""
        if current != expected:
            return current
        self.set(key, value)
        return value

    def delete_key(self, key: str) -> bool:
        """Take a key out."""
        there = self.look(key) is not None
        self._values.pop(key, None)
        self._ends.pop(key, None)
        return there

    def multi_get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return several values as they are now."""
        return [self.look(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes]) -> None:
        """Put several values."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with ``prefix``, in order."""
        return sorted(
            key for key in list(self._values) if key.startswith(prefix) and self.look(key) is not None
        )

    def num_keys(self) -> int:
        """Return how many keys there are."""
        self.forget_expired()
        return len(self._values)

    def append(self, key: str, value: bytes) -> None:
        """Put a value behind that of a key."""
        self._values[key] = (self.look(key) or b"") + value
        self._wake(key)

    def queue_len(self, key: str) -> int:
        """Return how many values a queue holds."""
        return len(self._queues.get(key, ()))

    def queue_push(self, key: str, value: bytes) -> int:
        """Put a value at the end of a queue; return how many it holds."""
        queue = self._queues.setdefault(key, deque())
        queue.append(value)
        self._wake(f"queue {key}")
        return len(queue)

    def queue_take(self, key: str) -> bytes | None:
        """Take the first value of a queue; None where it is empty."""
        queue = self._queues.get(key)
        if not queue:
            return None
        value = queue.popleft()
        if not queue:
            del self._queues[key]
        return value

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Return those keys that are not there."""
        return [key for key in keys if self.look(key) is None]

    def forget_expired(self) -> None:
        """Take out what nobody has looked at since its time was over."""
        now = time.monotonic()
        for key in [key for key, end in self._ends.items() if end <= now]:
            self.look(key)

    def wait(
        self,
        names: Sequence[str],
        ready: Callable[[], Any],
        finish: Callable[[Any], None],
        timer: asyncio.TimerHandle,
    ) -> Waiter:
        """Call ``finish`` with what ``ready`` returns, once that is not None.

        ``names`` are the keys, or queues, whose change may make it so. Who waits longest is asked first.
        ``timer``, which gives the waiter up, is cancelled when it leaves.
        """
        waiter = Waiter(tuple(dict.fromkeys(names)), ready, finish, timer)
        for name in waiter.names:
            self._waiters.setdefault(name, {})[waiter] = None
        return waiter

    def leave(self, waiter: Waiter) -> None:
        """Let it wait no more."""
        waiter.timer.cancel()
        for name in waiter.names:
            waiting = self._waiters.get(name)
            if waiting is not None:
                waiting.pop(waiter, None)
                if not waiting:
                    del self._waiters[name]

    def _wake(self, name: str) -> None:
        waiting = self._waiters.get(name)
        if waiting is None:
            return
        for waiter in list(waiting):
            if waiter in waiting and (result := waiter.ready()) is not None:
                waiter.finish(result)


class Waiter:
    """A request that waits: for a change of one of ``names``, after which ``ready`` may return a result."""

    __slots__ = ("finish", "names", "ready", "timer")

    def __init__(
        self,
        names: tuple[str, ...],
        ready: Callable[[], Any],
        finish: Callable[[Any], None],
        timer: asyncio.TimerHandle,
    ) -> None:
        self.names, self.ready, self.finish, self.timer = names, ready, finish, timer
