"""The store of ranks on one machine, or on a file system with locks: an SQLite file."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from ...errors import DistributedError, DistributedTimeoutError

T = TypeVar("T")
_DEFAULT_TIMEOUT: Final = 300.0
_BUSY_SECONDS: Final = 60.0
_POLLS: Final = (0.001, 0.05)
"""The shortest and the longest pause between two looks at the file, in seconds."""


class FileStore:
    """A ``Store`` in the file ``path``, which any of the ranks makes; it must be new for each program.

    >>> import tempfile, os
    >>> store = FileStore(os.path.join(tempfile.mkdtemp(), "ranks"))
    >>> store.add("ranks", 2)
    2
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._local = threading.local()
        self._do(lambda db: db.execute("CREATE TABLE IF NOT EXISTS pairs (key TEXT PRIMARY KEY, value BLOB)"))

    def set(self, key: str, value: bytes) -> None:
        """Put ``value`` under ``key``."""
        self._do(lambda db: _put(db, key, value))

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for ``key`` and return its value. Raises ``DistributedTimeoutError``."""
        self.wait([key], timeout)
        value = self._do(lambda db: _look(db, key))
        if value is None:
            raise DistributedError(f"store {self.path}: {key!r} was deleted while it was read.")
        return value

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key`` and return the sum."""

        def add(db: sqlite3.Connection) -> int:
            total = int(_look(db, key) or b"0") + amount
            _put(db, key, str(total).encode())
            return total

        return self._do(add)

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Wait for all keys. Raises ``DistributedTimeoutError``."""
        limit = _DEFAULT_TIMEOUT if timeout is None else timeout
        end, (pause, longest) = time.monotonic() + limit, _POLLS
        while missing := [key for key in keys if not self.check([key])]:
            left = end - time.monotonic()
            if left <= 0:
                names = ", ".join(map(repr, missing))
                raise DistributedTimeoutError(
                    f"store {self.path}: nobody set {names} within {limit:g} seconds."
                )
            time.sleep(min(pause, left))
            pause = min(pause * 2, longest)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return self._do(lambda db: all(_look(db, key) is not None for key in keys))

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there (b"": nothing is); return what is there then."""

        def compare(db: sqlite3.Connection) -> bytes:
            current = _look(db, key) or b""
            if current == expected:
                _put(db, key, value)
                return bytes(value)
            return current

        return self._do(compare)

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        return self._do(lambda db: db.execute("DELETE FROM pairs WHERE key = ?", (key,)).rowcount > 0)

    def _do(self, step: Callable[[sqlite3.Connection], T]) -> T:
        """Do one step for all ranks: a transaction that holds the file's lock."""
        try:
            db: sqlite3.Connection | None = getattr(self._local, "db", None)
            if db is None or self._local.process != os.getpid():
                db = self._local.db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
                self._local.process = os.getpid()
            db.execute("BEGIN IMMEDIATE")
            try:
                result = step(db)
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise DistributedError(
                f"store {self.path}: {error}. It must be a file that all ranks may write to, made for this"
                f" program alone."
            ) from error
        return result


def _look(db: sqlite3.Connection, key: str) -> bytes | None:
    row = db.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()
    return None if row is None else bytes(row[0])


def _put(db: sqlite3.Connection, key: str, value: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?)", (key, bytes(value)))
