"""Waits for requests of MPI by polling, so that timeouts, aborts and Ctrl-C end the wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

_SPINS: Final = 50
_PAUSES: Final = (20e-6, 1e-3)
"""The shortest and the longest pause between two looks, in seconds."""
_unfinished: Final[list[Any]] = []
"""Requests that were given up, with their buffers, into which MPI may still write."""


def wait(requests: Sequence[Any], end: float, check: Callable[[], None], buffers: Any = ()) -> bool:
    """Return True once all requests are done, False at ``end`` (seconds of ``time.monotonic``).

    ``check`` is called in between, and what it raises is raised. Requests not done are given up then:
    they and ``buffers`` are kept for as long as the process lives.
    """
    spins, pause = 0, _PAUSES[0]
    pending = [request for request in requests if request is not None]
    try:
        while True:
            pending = [request for request in pending if not request.Test()]
            if not pending:
                return True
            check()
            if time.monotonic() > end:
                return False
            spins += 1
            if spins > _SPINS:
                time.sleep(pause)
                pause = min(pause * 1.5, _PAUSES[1])
            else:
                time.sleep(0)
    finally:
        if pending:
            _unfinished.append((pending, buffers))
