"""Runs what a driver may never return from, with a time limit that the caller can rely on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
SECONDS_BETWEEN_LOOKS: Final = 0.1


class ProbeTimeoutError(Exception):
    """The work had not returned when its time was up. Its thread still runs, and dies with the process."""


class Probe(Generic[T]):
    """``work`` in a daemon thread: started once, waited for as often as one likes.

    ``inline=True`` runs it in the caller's thread instead, without a limit: for a caller that holds what the
    thread would have to wait for, such as the import lock of a package.
    """

    def __init__(self, work: Callable[[], T], name: str, *, inline: bool = False) -> None:
        self._work = work
        self._done = False
        self._gate = threading.Lock()
        """Held until the work is done. An event could be left locked by an interrupt of who waits for it."""
        self._result: Any = None
        self._error: BaseException | None = None
        self.thread: threading.Thread | None = None
        if inline:
            self._result = work()
            self._done = True
        else:
            self._gate.acquire()
            self.thread = threading.Thread(target=self._run, name=name, daemon=True)
            try:
                self.thread.start()
            except RuntimeError:  # the interpreter is ending and starts no threads
                self._run()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # handed to the thread that waits
            self._error = error
        finally:
            self._done = True
            self._gate.release()

    @property
    def is_done(self) -> bool:
        """Whether the work has returned, or raised something."""
        return self._done

    def wait(self, seconds: float) -> T:
        """Return what the work returned, or raise what it raised, or ``ProbeTimeoutError``.

        It looks up every tenth of a second: an interrupt that the system hands to another thread wakes nobody
        who waits for a lock.
        """
        end = time.monotonic() + seconds
        while not self._done:
            left = end - time.monotonic()
            if left <= 0:
                raise ProbeTimeoutError(f"no answer within {seconds:g} s")
            if self._gate.acquire(timeout=min(left, SECONDS_BETWEEN_LOOKS)):
                self._gate.release()
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result
