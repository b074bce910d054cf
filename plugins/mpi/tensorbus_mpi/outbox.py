"""Messages that were sent and are not received yet: nobody waits for them.

MPI goes on with large ones only while it is called, so that a thread asks after them. It lives while there
are any.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

_PAUSE: Final = 5e-4
"""Seconds between two looks."""
_LAST_SECONDS: Final = 10.0
"""How long the end of a program may wait until what it has sent is received."""


class Outbox:
    """Requests of MPI with the bytes that they send."""

    def __init__(self) -> None:
        self._pending: list[tuple[list[Any], Any]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, requests: Sequence[Any], data: Any) -> None:
        """Keep requests and their bytes until they are done."""
        left = [request for request in requests if not request.Test()]
        if not left:
            return
        with self._lock:
            self._pending.append((left, data))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tensorbus-mpi-send", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> None:
        """Wait until all is received, no longer than so many seconds."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._lock:
                pending = [
                    ([r for r in requests if not _is_over(r)], data) for requests, data in self._pending
                ]
                self._pending = [pair for pair in pending if pair[0]]
                if not self._pending:
                    self._thread = None
                    return
            time.sleep(_PAUSE)


def _is_over(request: Any) -> bool:
    """Return whether a request is done, or has failed: its group tells of that in its next call."""
    from mpi4py import MPI

    try:
        return bool(request.Test())
    except MPI.Exception:
        return True


outbox: Final = Outbox()
atexit.register(outbox.flush, _LAST_SECONDS)
