"""Waits of the host for a GPU that others can end.

CUDA has no way to end a call that waits. Where work may never be done, as a collective whose other rank does
not come, a thread of its own makes that call, and whoever waits is woken by what comes first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

_PERIOD: Final = 0.5
"""Seconds of a wait between two looks."""


class _Waiting:
    """A call that waits: ``woken`` once it has returned, or has been given up."""

    __slots__ = ("call", "error", "is_done", "woken")

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.error: BaseException | None = None
        self.is_done = False
        self.woken = threading.Event()


class InterruptibleWait:
    """Makes calls that wait, in threads that are kept. Safe in many threads."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Waiting] = SimpleQueue()
        self._waiting: set[_Waiting] = set()
        self._idle = 0
        self.interrupted = False
        """Whether no wait begins since ``interrupt``, until whoever has raised what was due says False."""
        self._lock = threading.Lock()

    def run(self, call: Callable[[], object], look: Callable[[], None]) -> bool:
        """Make a call; return True once it has returned, False where ``interrupt`` came first.

        ``look`` is called while that takes long: it may interrupt, too. A call that was given up, also by
        Ctrl-C, goes on in its thread. Raises what the call raises.
        """
        waiting = _Waiting(call)
        with self._lock:
            if self.interrupted:
                return False
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
        return waiting.is_done

    def interrupt(self) -> None:
        """End all waits."""
        with self._lock:
            self.interrupted = True
            for waiting in self._waiting:
                waiting.woken.set()

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
