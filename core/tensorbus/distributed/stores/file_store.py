"""The store of ranks on one machine, or on a file system with locks: an SQLite file."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Final, TypeVar

from ...backend_interface import store_arguments
from ...errors import DistributedError, DistributedTimeoutError
from ...system import fork_safe_locks

if sys.platform != "win32":
    from .life_locks import LifeLocks

T = TypeVar("T")
_DEFAULT_TIMEOUT: Final = 300.0
_BUSY_SECONDS: Final = 60.0
_POLLS: Final = (0.001, 0.05)
"""The shortest and the longest pause between two looks at the file, in seconds."""
_LOSSES: Final = "CREATE TABLE IF NOT EXISTS losses (key TEXT PRIMARY KEY, value BLOB, slot INTEGER)"
_LOSS: Final = "SELECT key, value, slot FROM losses WHERE key = ?"
_READ, _WRITE = "BEGIN", "BEGIN IMMEDIATE"
"""How a step begins: readers hold the file together, one that writes has it for itself."""


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
        self._writes = fork_safe_locks.simple()
        """Threads take turns here: SQLite lets one that waits look from time to time only."""
        self._do(lambda db: db.execute("CREATE TABLE IF NOT EXISTS pairs (key TEXT PRIMARY KEY, value BLOB)"))
        self._do(lambda db: db.execute(_LOSSES))

    def set(self, key: str, value: bytes) -> None:
        """Put ``value`` under ``key``."""
        key, value = store_arguments.store_key(key), store_arguments.store_value(value)
        self._do(lambda db: _put(db, key, value))

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for ``key`` and return its value. Raises ``DistributedTimeoutError``."""
        key = store_arguments.store_key(key)
        return self._until(lambda: self._values([key])[0], lambda: [key], timeout)

    def add(self, key: str, amount: int) -> int:
        """Add to the number under ``key`` and return the sum."""
        key, amount = store_arguments.store_key(key), store_arguments.store_amount(amount)

        def add(db: sqlite3.Connection) -> int:
            total = store_arguments.store_sum(key, _look(db, key), amount)
            _put(db, key, str(total).encode())
            return total

        return self._do(add)

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Wait for all keys. Raises ``DistributedTimeoutError``."""
        names = store_arguments.store_keys(keys)
        self._until(
            lambda: self.check(names) or None,
            lambda: [key for key in names if not self.check([key])] or names,
            timeout,
        )

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        return None not in self._values(store_arguments.store_keys(keys))

    def compare_set(self, key: str, expected: bytes, value: bytes) -> bytes:
        """Put ``value`` where ``expected`` is there (b"": nothing is); return what is there then."""
        key, expected, value = (
            store_arguments.store_key(key),
            store_arguments.store_value(expected),
            store_arguments.store_value(value),
        )

        def compare(db: sqlite3.Connection) -> bytes:
            current = _look(db, key) or b""
            if current == expected:
                _put(db, key, value)
                return value
            return current

        return self._do(compare)

    def delete_key(self, key: str) -> bool:
        """Take the key out; return whether it was there."""
        key = store_arguments.store_key(key)
        return self._do(lambda db: db.execute("DELETE FROM pairs WHERE key = ?", (key,)).rowcount > 0)

    if sys.platform != "win32":

        def set_on_loss(self, key: str, value: bytes) -> None:
            """Put ``value`` under ``key`` once this process has ended, however: for whoever looks then.

            So others hear of a process that ends without a word. On a file system without locks they do not.
            """
            key, value = store_arguments.store_key(key), store_arguments.store_value(value)

            def register(db: sqlite3.Connection) -> None:
                (slot,) = db.execute("SELECT COALESCE(MAX(slot), 0) + 1 FROM losses").fetchone()
                if LifeLocks.of(self.path).hold(slot):
                    db.execute("INSERT OR REPLACE INTO losses VALUES (?, ?, ?)", (key, value, slot))

            self._do(register)

    def _values(self, keys: Sequence[str]) -> list[bytes | None]:
        """Return several values as they are now, those of processes that have ended too."""

        def look(db: sqlite3.Connection) -> tuple[list[bytes | None], list[tuple[str, bytes, int]]]:
            values = [_look(db, key) for key in keys]
            missing = [key for key, value in zip(keys, values, strict=True) if value is None]
            return values, [row for key in missing for row in db.execute(_LOSS, (key,))]

        values, losses = self._do(look, _READ)
        if sys.platform != "win32":
            lost = [(key, value) for key, value, slot in losses if not LifeLocks.of(self.path).is_held(slot)]
            for key, value in lost:
                self.set(key, value)
            if lost:
                return self._do(lambda db: [_look(db, key) for key in keys], _READ)
        return values

    def close(self, reason: str = "") -> None:
        """Leave; the file stays, for the ranks that still use it."""
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is not None and self._local.process == os.getpid():
            db.close()
        self._local.db = None

    def _until(
        self, look: Callable[[], T | None], missing: Callable[[], list[str]], timeout: float | None
    ) -> T:
        """Return what ``look`` returns once that is not None. Raises ``DistributedTimeoutError``."""
        limit = store_arguments.store_seconds(timeout, _DEFAULT_TIMEOUT)
        end, (pause, longest) = time.monotonic() + limit, _POLLS
        while (result := look()) is None:
            left = end - time.monotonic()
            if left <= 0:
                names = ", ".join(map(repr, missing()))
                raise DistributedTimeoutError(
                    f"store {self.path}: nobody set {names} within {limit:g} seconds."
                )
            time.sleep(min(pause, left))
            pause = min(pause * 2, longest)
        return result

    def _do(self, step: Callable[[sqlite3.Connection], T], begin: str = _WRITE) -> T:
        """Do one step for all ranks: a transaction that holds the file's lock."""
        try:
            with self._writes if begin == _WRITE else nullcontext():
                db = self._connection()
                db.execute(begin)
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

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None or self._local.process != os.getpid():
            db = self._local.db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            db.execute("PRAGMA synchronous = OFF")  # ranks meet here, and do not outlive the machine
            self._local.process = os.getpid()
        return db


def _look(db: sqlite3.Connection, key: str) -> bytes | None:
    row = db.execute("SELECT value FROM pairs WHERE key = ?", (key,)).fetchone()
    return None if row is None else bytes(row[0])


def _put(db: sqlite3.Connection, key: str, value: bytes) -> None:
    db.execute("INSERT OR REPLACE INTO pairs VALUES (?, ?)", (key, value))
