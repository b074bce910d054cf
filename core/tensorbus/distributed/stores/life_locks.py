"""Locks that say whether a process lives: the system lets go of them when it ends, however it does."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import Final

from ...system import fork_safe_locks

_lock: Final = fork_safe_locks.simple()
_files: Final[dict[str, LifeLocks]] = {}


class LifeLocks:
    """Those of the processes that meet at a file, each a byte of the file beside it called ``.alive``.

    A process has one for a file, as POSIX takes its locks away when it closes any of its descriptors of the
    file: this one stays open. A forked child has none of the locks, and makes one of its own.
    """

    def __init__(self, path: str) -> None:
        self._process = os.getpid()
        self._descriptor = os.open(f"{path}.alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._own: set[int] = set()

    @classmethod
    def of(cls, path: str) -> LifeLocks:
        """Return this process's, which it makes at the first call."""
        path = os.path.realpath(path)
        with _lock:
            locks = _files.get(path)
            if locks is None or locks._process != os.getpid():
                locks = _files[path] = cls(path)
            return locks

    def hold(self, slot: int) -> bool:
        """Hold a lock from now on; return whether that is so."""
        with suppress(OSError):  # the file system has no locks
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            self._own.add(slot)
        return slot in self._own

    def is_held(self, slot: int) -> bool:
        """Return whether a process that lives holds a lock, or another one looks at this moment."""
        with _lock:
            if slot in self._own:
                return True
            try:
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except OSError:
                return True
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, slot)
            return False
