"""A spinner for what takes more than two seconds, on a terminal only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

_PATIENCE_SECONDS = 2.0


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show that ``what`` is going on, on the error stream, from two seconds after it began until it ends."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    status = console.status(f"{what} ...")
    timer = threading.Timer(_PATIENCE_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()
