"""A part of a store: keys of one program, or of one try, that are in nobody else's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...backend_interface.communication import Store
from ...backend_interface.store_arguments import store_key, store_keys
from ...errors import ArgumentError


class PrefixStore:
    """A ``Store`` whose keys are those of ``store`` that begin with ``prefix``.

    What ``store`` has beyond the protocol, queues and requests of several keys, is here too.

    >>> from tensorbus.distributed import MemoryStore
    >>> whole = MemoryStore()
    >>> PrefixStore("run7/", whole).set("a", b"1")
    >>> whole.get("run7/a")
    b'1'
    """

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self._store = store_key(prefix), store

    def set(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Put ``value`` under ``key``; for ``ttl`` seconds where they are given and the store has that."""
        if ttl is None:
            self._store.set(self._one(key), value)
        else:
            self._beyond("queue_push")  # what has queues has times
            store: Any = self._store
            store.set(self._one(key), value, ttl=ttl)

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for ``key`` and return its value. Raises ``DistributedTimeoutError``."""
        return self._store.get(self._one(key), timeout)

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key`` and return the sum."""
        return self._store.add(self._one(key), amount)

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Wait for all keys. Raises ``DistributedTimeoutError``."""
        self._store.wait(self._all(keys), timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return self._store.check(self._all(keys))

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there (b"": nothing is); return what is there then."""
        return self._store.compare_set(self._one(key), expected, value)

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        return self._store.delete_key(self._one(key))

    def multi_get(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return several values as they are now, None where there is none."""
        return list(self._beyond("multi_get")(self._all(keys)))

    def multi_set(self, keys: Sequence[str], values: Sequence[bytes]) -> None:
        """Put several values."""
        self._beyond("multi_set")(self._all(keys), values)

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys that begin with ``prefix``, in order."""
        return [key.removeprefix(self.prefix) for key in self._beyond("list_keys")(self._one(prefix))]

    def num_keys(self) -> int:
        """Return how many keys there are."""
        return len(self.list_keys())

    def append(self, key: str, value: bytes) -> None:
        """Put ``value`` behind what is under ``key``."""
        self._beyond("append")(self._one(key), value)

    def queue_push(self, key: str, value: bytes) -> int:
        """Put a value at the end of the queue ``key``; return how many it holds."""
        return int(self._beyond("queue_push")(self._one(key), value))

    def queue_pop(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for the first value of the queue ``key`` and take it. Raises ``DistributedTimeoutError``."""
        return bytes(self._beyond("queue_pop")(self._one(key), timeout))

    def queue_len(self, key: str) -> int:
        """Return how many values the queue ``key`` holds."""
        return int(self._beyond("queue_len")(self._one(key)))

    @property
    def set_on_loss(self) -> Callable[[str, bytes], None]:
        """The method of a store that sees its connections end; others have no such attribute."""
        store: Any = self._store
        method = store.set_on_loss
        return lambda key, value: method(self._one(key), value)

    def close(self, reason: str = "") -> None:
        """Leave the store."""
        close = getattr(self._store, "close", None)
        if close is not None:
            close(reason)

    def _all(self, keys: Sequence[str]) -> list[str]:
        return [self.prefix + key for key in store_keys(keys)]

    def _one(self, key: str) -> str:
        return self.prefix + store_key(key)

    def _beyond(self, name: str) -> Any:
        """Return a method that the protocol of stores does not have."""
        method = getattr(self._store, name, None)
        if method is None:
            raise ArgumentError(
                f"store: {type(self._store).__name__} has no {name}; those of tcp://, redis:// and memory://"
                f" have."
            )
        return method
