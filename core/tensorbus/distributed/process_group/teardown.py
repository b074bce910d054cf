"""The ends of what libraries hold for groups: aborts and closes, each in a thread of its own.

A library may wait in them: for the device, for graphs that hold its work, for other ranks. A program waits
for it a while, and then goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

from ...system.exit_handlers import skip_exit_handlers

_under_way: Final[dict[threading.Event, float]] = {}
"""What is set at the end of each that has begun, and until when new work waits for that."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_under_way.clear)


def begin(work: Callable[[], None], seconds: float = 0.0) -> threading.Event:
    """Do the work in a thread, and set the event. ``wait`` waits ``seconds`` from now on for it at most."""

    def run() -> None:
        try:
            work()
        finally:
            _under_way.pop(done)
            done.set()

    done = threading.Event()
    _under_way[done] = time.monotonic() + seconds
    threading.Thread(target=run, name="tensorbus-teardown", daemon=True).start()
    return done


def close_within(close: Callable[[], None], seconds: float) -> None:
    """Close, for so long at most: then it goes on by itself. Raises what it raises till then."""
    errors: list[Exception] = []

    def work() -> None:
        try:
            close()
        except Exception as error:  # raised by the thread that waits
            errors.append(error)

    begin(work).wait(seconds)
    if errors:
        raise errors[0]


def wait() -> None:
    """Wait for aborts that are under way, as long as a program waits for one at most.

    New work on the device, another group's too, could keep an abort waiting, and would wait itself behind it.
    """
    for done, until in list(_under_way.items()):
        done.wait(max(until - time.monotonic(), 0.0))


def leave() -> None:
    """Wait for aborts; where a library is at work even then, the process ends without giving all back.

    That would be taken from the library while it uses it.
    """
    wait()
    if _under_way:
        skip_exit_handlers()
