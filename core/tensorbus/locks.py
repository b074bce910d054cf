"""Locks that are free in a forked child where another thread held them: that thread is not there."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from _thread import RLock

_made: Final[WeakSet[Any]] = WeakSet()


def simple() -> threading.Lock:
    """Return a lock that one thread holds, once."""
    made = threading.Lock()
    _made.add(made)
    return made


def reentrant() -> RLock:
    """Return a lock that one thread holds, as often as it likes."""
    made = threading.RLock()
    _made.add(made)
    return made


def _renew() -> None:
    for each in list(_made):
        if not (hasattr(each, "_is_owned") and each._is_owned()):  # by who forks, and will release it
            each._at_fork_reinit()  # as the standard library renews its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
