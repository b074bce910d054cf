"""The store of a rank that is alone: the others have written to it what this one did."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

import tensorbus as tb
from tensorbus.errors import ArgumentError, DistributedTimeoutError

from .schedule import Call


class Factory:
    """Opens ``fake://``."""

    def open(self, url: str, *, serve: bool, timeout: float) -> FakeStore:
        """Return a store of its own at each call."""
        parts = urlsplit(url)
        if parts.netloc or parts.path not in ("", "/"):
            raise ArgumentError(
                f"distributed: the store of ranks that are not there is fake://, got {url!r}."
            )
        return FakeStore()


class FakeStore:
    """A ``Store`` in which every rank seems to have done what this one did; nothing waits.

    A key that ends in ``/`` and a number is a rank's: one that is not there has the value of the one that
    is, whatever its number. ``calls`` is every collective of this rank, in order.

    >>> store = FakeStore()
    >>> store.set("device/3", b"cpu")
    >>> store.get("device/500")
    b'cpu'
    """

    alone = True

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._values = tb.distributed.MemoryStore()
        self._own: dict[str, str] = {}
        """By what stands before a rank's number: the key that was set."""

    def set(self, key: str, value: bytes) -> None:
        """Put ``value`` under ``key``."""
        self._values.set(key, value)
        if (stem := _stem(key)) is not None:
            self._own[stem] = key

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Return the value. Raises ``DistributedTimeoutError`` at once where nobody will set it."""
        self.wait([key])
        return self._values.get(self._there(key), 0)

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key`` and return the sum; the others add nothing."""
        return self._values.add(key, amount)

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Raise ``DistributedTimeoutError`` for keys that are not there."""
        missing = [key for key in keys if not self.check([key])]
        if missing:
            names = ", ".join(map(repr, missing))
            raise DistributedTimeoutError(
                f"store fake://: nobody set {names}, and no other rank is there to do it. Let this rank set"
                f" it, or run the program on ranks that communicate."
            )

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return self._values.check([self._there(key) for key in keys])

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there; return what is there then."""
        return self._values.compare_set(key, expected, value)

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        return self._values.delete_key(key)

    def _there(self, key: str) -> str:
        stem = _stem(key)
        return key if stem is None or self._values.check([key]) else self._own.get(stem, key)


def _stem(key: str) -> str | None:
    stem, slash, number = key.rpartition("/")
    return stem if slash and number.isdecimal() else None
