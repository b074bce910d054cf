"""Counts the memory that handles of values hold, and tells when one is gone, past interrupts.

A handle with a ``__del__`` in Python loses the user's Ctrl-C: where it arrives while Python frees a value,
``KeyboardInterrupt`` is raised inside of ``__del__``, which drops whatever is raised there. Here a handle is
watched by a weak reference, whose callback is the ``append`` of a deque: nothing written in Python runs when
a value is freed, so nothing can be interrupted. What is gone is dealt with at the next allocation, or when
somebody asks for the bytes in use.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any


class Life(weakref.ref[Any]):
    """Watches a handle of ``nbytes``. ``memory`` is what is left when it is gone, for ``reclaim``."""

    __slots__ = ("memory", "nbytes", "users")
    memory: Any
    nbytes: int
    users: Any


class HandleCounter:
    """The bytes of all handles that live, and their ``peak``. ``add`` and ``collect`` need the ``lock``.

    ``reclaim(life)`` is called once for each handle that is gone, by the thread that finds it so, while the
    lock is held. The memory itself may just as well be freed with the handle, where it is an object of which
    that has the only reference. A handle's class needs ``__weakref__`` among its slots.

    >>> class Handle: pass
    >>> counter, handle = HandleCounter(), Handle()
    >>> with counter.lock:
    ...     life = counter.add(handle, 64)
    >>> counter.allocated
    64
    >>> del handle
    >>> counter.allocated, counter.peak
    (0, 64)
    """

    def __init__(self, reclaim: Callable[[Life], None] | None = None) -> None:
        self.lock = threading.RLock()  # an object that is freed meanwhile may allocate
        self.peak = 0
        self._allocated = 0
        self._reclaim = reclaim
        self._alive: set[Life] = set()
        self.gone: deque[Life] = deque()
        """What ``collect`` will deal with."""
        self._on_death = self.gone.append

    def add(self, handle: Any, nbytes: int, memory: Any = None, users: Any = None) -> Life:
        """Count a new handle; return what watches it."""
        life = Life(handle, self._on_death)
        life.nbytes, life.memory, life.users = nbytes, memory, users
        try:
            self._alive.add(life)
            self._allocated = total = self._allocated + nbytes
            if total > self.peak:
                self.peak = total
        except BaseException:  # an interrupt
            self._recount()
            raise
        return life

    def collect(self) -> None:
        """Deal with all handles that are gone."""
        gone, reclaim = self.gone, self._reclaim
        try:
            while gone:
                life = gone.popleft()
                self._alive.discard(life)
                self._allocated -= life.nbytes
                if reclaim is not None:
                    reclaim(life)
        except BaseException:  # an interrupt
            self._recount()
            raise

    @property
    def allocated(self) -> int:
        """The bytes in use."""
        with self.lock:
            self.collect()
            return self._allocated

    def reset_peak(self) -> None:
        """Make the peak equal to what is in use."""
        with self.lock:
            self.peak = self.allocated

    def _recount(self) -> None:
        """Count anew: an interrupt may have come between two lines."""
        lost = [life for life in self._alive if life() is None and life not in self.gone]
        self._alive.difference_update(lost)
        self._allocated = sum(life.nbytes for life in self._alive)
