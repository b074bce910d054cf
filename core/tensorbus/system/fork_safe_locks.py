"""Locks that are free in a forked child where another thread held them: that thread is not there."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .weak_tables import WeakSet

if TYPE_CHECKING:
    from _thread import RLock

T = TypeVar("T")
_locks: Final[WeakSet[Any]] = WeakSet()


def simple() -> threading.Lock:
    """Return a lock that one thread holds, once."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def reentrant() -> RLock:
    """Return a lock that one thread holds, as often as it likes."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


class cached_property(functools.cached_property[T]):  # noqa: N801
    """The standard library's, whose lock in Python 3.11 is free in a forked child."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        lock = getattr(self, "lock", None)
        if lock is not None:
            _locks.add(lock)


def _renew() -> None:
    for each in _locks:
        if not (hasattr(each, "_is_owned") and each._is_owned()):  # by who forks, and will release it
            each._at_fork_reinit()  # as the standard library renews its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
