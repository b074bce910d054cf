"""Waits of the host for a GPU that others can end.

CUDA has no way to end a call that waits. Where work may never be done, as a collective whose other rank does
not come, a thread of its own makes that call, and whoever waits is woken by what comes first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

_PERIOD: Final = 0.5
"""Seconds of a wait between two looks."""


class _Waiting:
    """A call that waits: ``woken`` once it has returned, or has been given up for an error of others."""

    __slots__ = ("call", "error", "is_done", "others", "woken")

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.error: BaseException | None = None
        self.others: Exception | None = None
        self.is_done = False
        self.woken = threading.Event()


class InterruptibleWait:
    """Makes calls that wait, in threads that are kept. Safe in many threads.

    ``late`` are the errors of others that are still to be raised, in order: whoever raises one, or knows it
    already, takes it out.
    """

    def __init__(self, late: list[Exception]) -> None:
        self._late = late
        self._last = late[-1] if late else None
        self._due: list[Exception] = []
        """Those for which waits were interrupted: while one is still to be raised, no wait begins."""
        self._calls: SimpleQueue[_Waiting] = SimpleQueue()
        self._waiting: set[_Waiting] = set()
        self._idle = 0
        self._lock = threading.Lock()

    def expect(self, error: Exception) -> None:
        """Note what ``interrupt`` is called for next, also where somebody takes it out before."""
        with self._lock:
            self._last = error

    def run(self, call: Callable[[], object], look: Callable[[], None]) -> None:
        """Make a call that waits. Raises what it raises, or the error of others that ended the wait.

        ``look`` is called while that takes long: it may interrupt, too. A call that was given up, also by
        Ctrl-C, goes on in its thread.
        """
        waiting = _Waiting(call)
        with self._lock:
            self._due = [error for error in self._due if error in self._late]
            if self._due:
                self._raise(self._due[0])
            self._waiting.add(waiting)
            if self._idle:
                self._idle -= 1
            else:
                threading.Thread(target=self._work, name="tensorbus-cuda-wait", daemon=True).start()
        self._calls.put(waiting)
        try:
            while not waiting.woken.wait(_PERIOD):
                look()
        finally:
            with self._lock:
                self._waiting.discard(waiting)
        if waiting.error is not None:
            raise waiting.error
        if not waiting.is_done and waiting.others is not None:
            self._raise(waiting.others)

    def interrupt(self) -> None:
        """End all waits: each of them raises the same error, whoever else has raised it meanwhile."""
        with self._lock:
            error = next(iter(self._late), self._last)
            self._due = list(self._late)
            if error is None:
                return
            for waiting in self._waiting:
                waiting.others = error
                waiting.woken.set()

    def _raise(self, error: Exception) -> None:
        with suppress(ValueError):
            self._late.remove(error)
        raise type(error)(str(error))

    def _work(self) -> None:
        while True:
            waiting = self._calls.get()
            try:
                waiting.call()
            except BaseException as error:  # raised where somebody waits
                waiting.error = error
            waiting.is_done = True
            with self._lock:
                self._idle += 1
            waiting.woken.set()
            del waiting
