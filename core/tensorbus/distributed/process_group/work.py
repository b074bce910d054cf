"""The handle of a collective that runs beside the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from ...devices.device import Device
from ...devices.stream import Event, has_streams
from ...errors import DistributedTimeoutError
from .future import Future

_SHORTEST, _LONGEST = 20e-6, 2e-3
_GLANCE: Final = 0.2
"""Seconds between two looks at whether the group has failed, while the host waits."""


class Place:
    """The progress of a collective that runs beside the program: submitted, and reached by the device.

    It outlives the handle: what follows it asks for nothing else, and so holds no result. ``is_receive``: it
    may be that nobody ever sends what it waits for.
    """

    __slots__ = ("is_receive", "reached", "submitted")

    def __init__(self) -> None:
        self.is_receive = False
        self.submitted = threading.Event()
        self.reached: Event | None = None

    def is_submitted(self) -> bool:
        """Return whether the call itself is over; a device may still work on what it queued."""
        return self.submitted.is_set()

    def follow(self) -> None:
        """Let later work in the current stream wait for it; the host only waits for the call itself."""
        self.submitted.wait()
        if self.reached is not None and not self.reached.is_done():
            self.reached.wait()


class Work:
    """A collective that was asked for with ``async_op=True``; its tensor is right once ``wait`` has returned.

    A group's collectives run in the order in which they were asked for. ``check`` raises what the group has
    failed by, if it has.

    >>> import tensorbus as tb
    >>> dist = tb.distributed
    >>> def rank() -> tuple[float, bool]:
    ...     x = tb.ones((), device="cpu")
    ...     work = dist.all_reduce(x, async_op=True)
    ...     work.wait()
    ...     return x.item(), work.is_completed()
    >>> dist.run_ranks(rank, 2)
    [(2.0, True), (2.0, True)]
    """

    def __init__(
        self, finish: Callable[[Any], Any] | None = None, check: Callable[[], None] | None = None
    ) -> None:
        self.place = Place()
        self.outputs: Sequence[Any] = ()
        """The tensors that the result is put into, where there are such ones."""
        self._finish, self._check = finish, check
        self._result: Any = None
        self._error: BaseException | None = None

    def is_submitted(self) -> bool:
        """Return whether the call itself is over; a device may still work on what it queued."""
        return self.place.is_submitted()

    def is_completed(self) -> bool:
        """Return whether the communication is over; ``wait`` returns at once then."""
        reached = self.place.reached
        return self.is_submitted() and (reached is None or reached.is_done())

    def is_success(self) -> bool:
        """Return whether the communication is over, and has not failed."""
        return self.is_completed() and self._error is None

    def exception(self) -> BaseException | None:
        """Return what the call raised, and ``wait`` will; None where it has not."""
        return self._error

    def wait(self, timeout: float | timedelta | None = None) -> Any:
        """Wait, put the result where it belongs, and return it.

        Where the device has queues and the communicator uses them, later work of this thread on the device
        waits, and the host does not; with a ``timeout`` it does. Raises what the collective raised, or
        ``DistributedTimeoutError`` after ``timeout`` seconds, when it still runs.
        """
        if isinstance(timeout, timedelta):
            timeout = timeout.total_seconds()
        end = None if timeout is None else time.monotonic() + timeout
        if not self.place.submitted.wait(timeout):
            raise DistributedTimeoutError(f"the collective still runs after {timeout:g} seconds of waiting.")
        if self._error is not None:
            raise self._error
        reached = self.place.reached
        if reached is not None:
            if end is not None:
                if not reach(reached, self._check, end):
                    raise DistributedTimeoutError(
                        f"the collective still runs after {timeout:g} seconds of waiting."
                    )
            elif self._check is not None:
                self._check()
            reached.wait()
        if self._finish is not None:
            finish, self._finish = self._finish, None
            self._result = finish(self._result)
        return self._result

    def get_future(self) -> Future:
        """Return the future of the list of tensors that the collective puts its result into.

        >>> import tensorbus as tb
        >>> def rank():
        ...     work = tb.distributed.all_reduce(tb.ones(2, device="cpu"), async_op=True)
        ...     return work.get_future().then(lambda known: known.value()[0] / 2).wait().tolist()
        >>> tb.distributed.run_ranks(rank, 2)
        [[1.0, 1.0], [1.0, 1.0]]
        """

        def outputs() -> list[Any]:
            result = self.wait()
            return [*self.outputs] if result is None else [result]

        return Future(outputs, self.is_completed)

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self._result = call()
        except BaseException as error:  # raised where somebody waits
            self._error = error
        finally:
            self.place.submitted.set()


def event_of(device: Device) -> Event | None:
    """Return an event behind the work now in the current stream; None where the device has no streams."""
    if not has_streams(device.runtime):
        return None
    event = Event(device)
    event.record()
    return event


def pauses() -> Iterator[None]:
    """Sleep before each item, longer and longer: between looks at what comes soon, as a rule."""
    pause = _SHORTEST
    while True:
        time.sleep(pause)
        yield
        pause = min(pause * 1.5, _LONGEST)


def reach(event: Event, check: Callable[[], None] | None = None, end: float | None = None) -> bool:
    """Wait on the host for an event; return False where it is not reached at ``end``.

    ``end`` is in seconds of ``time.monotonic``. ``check`` is called before, after and between looks.
    """
    pause, looked = _SHORTEST, 0.0
    while True:
        now = time.monotonic()
        if check is not None and now - looked > _GLANCE:
            check()
            looked = now
        if event.is_done():
            if check is not None:
                check()
            return True
        if end is not None and now > end:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)
