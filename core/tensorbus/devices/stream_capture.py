"""Work that a device records once and runs many times, and what has to happen around each of these runs.

A device that records a program calls its steps once. A step that does more than queue work on the device, as
a collective, leaves in the capture what is due at each run. It asks for the capture that is active in its
thread, and the device keeps that with what it has recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol


class AroundRun(Protocol):
    """The calls due around each run of captured work."""

    def begin(self) -> None:
        """Do what is due before a run. Raises where there must be none."""
        ...

    def end(self, error: BaseException | None) -> None:
        """Do what is due once a run has been queued; ``error`` is what it could not be queued for."""
        ...


class StreamCapture:
    """Recorded work: ``around`` is what is due around each run of it, by the object that it is due for.

    ``held`` is what the device keeps the work by; it is given back with the last reference. ``lock`` is held
    while a run is queued.
    """

    __slots__ = ("__weakref__", "around", "held", "lock")

    def __init__(self) -> None:
        self.around: dict[Any, AroundRun] = {}
        self.held: list[Any] = []
        self.lock = threading.Lock()

    def release(self) -> None:
        """Give the work back to the device, before what it uses is given back; it does not run again."""
        with self.lock:
            self.held.clear()

    def begin(self) -> None:
        """Call each ``begin``; where one raises, those before it are told."""
        begun: list[AroundRun] = []
        try:
            for each in self.around.values():
                each.begin()
                begun.append(each)
        except BaseException as error:
            for each in begun:
                each.end(error)
            raise

    def end(self, error: BaseException | None = None) -> None:
        """Call each ``end``."""
        for each in self.around.values():
            each.end(error)


class _Active(threading.local):
    capture: StreamCapture | None = None


_active: Final = _Active()


def active_capture() -> StreamCapture | None:
    """Return what a device records in this thread now; None where it runs what is queued."""
    return _active.capture


@contextmanager
def capturing(into: StreamCapture) -> Iterator[None]:
    """Return a context in which a device records what this thread queues.

    >>> capture = StreamCapture()
    >>> with capturing(capture):
    ...     active_capture() is capture
    True
    >>> active_capture() is None
    True
    """
    before, _active.capture = _active.capture, into
    try:
        yield
    finally:
        _active.capture = before
