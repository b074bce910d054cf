"""What the server keeps: keys with values, some for a time, queues, and who waits for what."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any


class Table:
    """Keys, queues and waiters. Only the server's loop touches it, so each step is one for all clients."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._ends: dict[str, float] = {}
        self._queues: dict[str, deque[bytes]] = {}
        self._waiters: dict[str, set[asyncio.Event]] = {}

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
        current = self.look(key)
        try:
            total = int(current or b"0") + amount
        except ValueError:
            raise ValueError(f"add: {key!r} holds {current!r}, which is no number") from None
        self.set(key, str(total).encode())
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

    async def until(self, names: Sequence[str], ready: Callable[[], Any], timeout: float) -> Any:
        """Return what ``ready`` returns once that is not None; None after ``timeout`` seconds.

        ``names`` are the keys whose change may make it so.
        """
        event = asyncio.Event()
        for name in names:
            self._waiters.setdefault(name, set()).add(event)
        end = time.monotonic() + timeout
        try:
            while (result := ready()) is None:
                left = end - time.monotonic()
                if left <= 0:
                    return None
                event.clear()
                try:
                    async with asyncio.timeout(left):
                        await event.wait()
                except TimeoutError:
                    continue
            return result
        finally:
            for name in names:
                waiting = self._waiters[name]
                waiting.discard(event)
                if not waiting:
                    del self._waiters[name]

    def _wake(self, name: str) -> None:
        for event in self._waiters.get(name, ()):
            event.set()
