"""The store of ranks that are threads of one process: a dictionary with a condition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ...backend_interface import store_arguments
from ...errors import DistributedError, DistributedTimeoutError

_DEFAULT_TIMEOUT = 300.0


class MemoryStore:
    """A ``Store`` in the memory of this process.

    >>> store = MemoryStore()
    >>> store.add("ranks", 2)
    2
    >>> store.get("ranks")
    b'2'
    """

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._ended = ""

    def close(self, reason: str = "the store was closed") -> None:
        """End all who wait with ``DistributedError`` saying ``reason``; nobody waits here afterwards."""
        with self._changed:
            self._ended = self._ended or reason
            self._changed.notify_all()

    def set(self, key: str, value: bytes) -> None:
        """Put ``value`` under ``key``."""
        key, value = store_arguments.store_key(key), store_arguments.store_value(value)
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for ``key`` and return its value. Raises ``DistributedTimeoutError``."""
        key = store_arguments.store_key(key)
        with self._changed:
            self._wait(lambda: key in self._values, lambda: [key], timeout)
            return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key`` and return the sum."""
        key, amount = store_arguments.store_key(key), store_arguments.store_amount(amount)
        with self._changed:
            total = store_arguments.store_sum(key, self._values.get(key), amount)
            self._values[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Wait for all keys. Raises ``DistributedTimeoutError``."""
        names = store_arguments.store_keys(keys)

        def missing() -> list[str]:
            return [key for key in names if key not in self._values]

        with self._changed:
            self._wait(lambda: not missing(), missing, timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        names = store_arguments.store_keys(keys)
        with self._changed:
            return all(key in self._values for key in names)

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there (b"": nothing is); return what is there then."""
        key, expected, value = (
            store_arguments.store_key(key),
            store_arguments.store_value(expected),
            store_arguments.store_value(value),
        )
        with self._changed:
            if self._values.get(key, b"") == expected:
                self._values[key] = value
                self._changed.notify_all()
            return self._values.get(key, b"")

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        key = store_arguments.store_key(key)
        with self._changed:
            return self._values.pop(key, None) is not None

    def _wait(
        self, ready: Callable[[], bool], missing: Callable[[], list[str]], timeout: float | None
    ) -> None:
        limit = store_arguments.store_seconds(timeout, _DEFAULT_TIMEOUT)
        end = time.monotonic() + limit
        while not ready():
            if self._ended:
                raise DistributedError(
                    f"store: {', '.join(map(repr, missing()))} will not come: {self._ended}."
                )
            left = end - time.monotonic()
            if left <= 0:
                raise DistributedTimeoutError(
                    f"store: nobody set {', '.join(map(repr, missing()))} within {limit:g} seconds."
                )
            self._changed.wait(min(left, threading.TIMEOUT_MAX))
