"""The store of ranks that are threads of one process: a dictionary with a condition."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from ...backend_interface.store_arguments import (
    store_amount,
    store_key,
    store_keys,
    store_pairs,
    store_seconds,
    store_sum,
    store_value,
)
from ...errors import DistributedError, DistributedTimeoutError

_DEFAULT_TIMEOUT = 300.0


class MemoryStore:
    """A ``Store`` in the memory of this process, with queues, and values for a time.

    >>> store = MemoryStore()
    >>> store.add("ranks", 2)
    2
    >>> store.get("ranks")
    b'2'
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._ends: dict[str, float] = {}
        """When values for a time are over, in seconds of ``time.monotonic``."""
        self._queues: dict[str, deque[bytes]] = {}
        self._changed = threading.Condition()
        self._ended = ""

    def close(self, reason: str = "the store was closed") -> None:
        """End all who wait with ``DistributedError`` saying ``reason``; nobody waits here afterwards."""
        with self._changed:
            self._ended = self._ended or reason
            self._changed.notify_all()

    def set(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Put ``value`` under ``key``; for ``ttl`` seconds where they are given."""
        key, value = store_key(key), store_value(value)
        seconds = None if ttl is None else store_seconds(ttl, 0)
        with self._changed:
            self._put(key, value)
            if seconds is not None:
                self._ends[key] = time.monotonic() + seconds

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for ``key`` and return its value. Raises ``DistributedTimeoutError``."""
        key = store_key(key)
        contents: list[bytes] = []

        def missing() -> str:
            value = self._look(key)
            contents.extend([] if value is None else [value])
            return repr(key) if value is None else ""

        with self._changed:
            self._wait(missing, lambda: f"nobody set {key!r} within", timeout)
            return contents[0]

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key`` and return the sum."""
        key, amount = store_key(key), store_amount(amount)
        with self._changed:
            total = store_sum(key, self._look(key), amount)
            self._values[key] = str(total).encode()  # for the time that is left, if any
            self._changed.notify_all()
            return total

    def append(self, key: str, value: bytes) -> None:
        """Put ``value`` behind what is under ``key``."""
        key, value = store_key(key), store_value(value)
        with self._changed:
            self._values[key] = (self._look(key) or b"") + value
            self._changed.notify_all()

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Wait for all keys. Raises ``DistributedTimeoutError``."""
        names = store_keys(keys)

        def missing() -> str:
            return ", ".join(repr(key) for key in names if self._look(key) is None)

        with self._changed:
            self._wait(missing, lambda: f"nobody set {missing()} within", timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        names = store_keys(keys)
        with self._changed:
            return all(self._look(key) is not None for key in names)

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there (b"": nothing is); return what is there then."""
        key, expected, value = store_key(key), store_value(expected), store_value(value)
        with self._changed:
            current = self._look(key) or b""
            if current != expected:
                return current
            self._put(key, value)
            return value

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        key = store_key(key)
        with self._changed:
            there = self._look(key) is not None
            self._values.pop(key, None)
            self._ends.pop(key, None)
            return there

    def multi_get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return several values as they are now, None where there is none: in one step."""
        names = store_keys(keys)
        with self._changed:
            return [self._look(key) for key in names]

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes]) -> None:
        """Put several values: in one step."""
        names, contents = store_pairs(keys, values)
        with self._changed:
            for key, value in zip(names, contents, strict=True):
                self._put(key, value)

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with ``prefix``, in order."""
        prefix = store_key(prefix)
        with self._changed:
            keys = [key for key in self._values if key.startswith(prefix)]
            return sorted(key for key in keys if self._look(key) is not None)

    def num_keys(self) -> int:
        """Return how many keys there are."""
        return len(self.list_keys())

    def queue_push(self, key: str, value: bytes) -> int:
        """Put a value at the end of the queue ``key``; return how many it holds."""
        key, value = store_key(key), store_value(value)
        with self._changed:
            queue = self._queues.setdefault(key, deque())
            queue.append(value)
            self._changed.notify_all()
            return len(queue)

    def queue_pop(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for the first value of the queue ``key`` and take it. Raises ``DistributedTimeoutError``."""
        key = store_key(key)

        def missing() -> str:
            return "" if self._queues.get(key) else f"a value of queue {key!r}"

        with self._changed:
            self._wait(missing, lambda: f"queue {key!r} stayed empty for", timeout)
            queue = self._queues[key]
            value = queue.popleft()
            if not queue:
                del self._queues[key]
            return value

    def queue_len(self, key: str) -> int:
        """Return how many values the queue ``key`` holds."""
        key = store_key(key)
        with self._changed:
            return len(self._queues.get(key, ()))

    def _put(self, key: str, value: bytes) -> None:
        self._values[key] = value
        self._ends.pop(key, None)
        self._changed.notify_all()

    def _look(self, key: str) -> bytes | None:
        """Return a key's value as it is now."""
        end = self._ends.get(key)
        if end is not None and end <= time.monotonic():
            del self._ends[key]
            self._values.pop(key, None)
        return self._values.get(key)

    def _wait(self, missing: Callable[[], str], late: Callable[[], str], timeout: float | None) -> None:
        """Wait until ``missing`` names nothing; ``late`` says what has not come at the limit."""
        limit = store_seconds(timeout, _DEFAULT_TIMEOUT)
        end = time.monotonic() + limit
        while names := missing():
            if self._ended:
                raise DistributedError(f"store: {names} will not come: {self._ended}.")
            left = end - time.monotonic()
            if left <= 0:
                raise DistributedTimeoutError(f"store: {late()} {limit:g} seconds.")
            self._changed.wait(min(left, threading.TIMEOUT_MAX))
