"""Streams, which order the work of a device in several queues, and events, which mark points in them.

A device whose runtime has no streams (``SupportsStreams``) has one implicit stream, on which all of this
works: waiting waits for the device, and events are timed by the host's clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeGuard

from ..backend_interface.capabilities import SupportsStreams
from ..errors import DeviceError
from .device import Device, DeviceLike
from .device import device as find_device

_streamed: Final[dict[type[Any], bool]] = {}
"""By class of runtime: asking a protocol takes as long as a launch."""


def has_streams(runtime: Any) -> TypeGuard[SupportsStreams]:
    """Return whether the work of a runtime's device can be ordered in several queues."""
    known = _streamed.get(type(runtime))
    if known is None:
        known = _streamed[type(runtime)] = isinstance(runtime, SupportsStreams)
    return known


class Stream:
    """A queue of work on one device. Work in one stream runs in order; streams wait for each other by events.

    Work in another stream is not waited for by itself: a stream that uses what another one makes waits for an
    event behind it. Reading a value on the host waits for everything.
    Raises ``DeviceUnavailableError`` where the device cannot be used.

    >>> import tensorbus as tb
    >>> x = tb.ones((2,))
    >>> side, made = tb.Stream(), tb.Event()
    >>> made.record()
    >>> side.wait_event(made)  # x comes from the current stream
    >>> with tb.stream(side):
    ...     y = x * 2
    >>> side.record_event().wait()  # before the current stream uses y
    >>> (y + 1).tolist()
    [3.0, 3.0]
    """

    __slots__ = ("device", "handle")

    def __init__(self, device: DeviceLike = None) -> None:
        self.device: Device = find_device(device)
        runtime = self.device.runtime
        self.handle: Any = runtime.create_stream(self.device.index) if has_streams(runtime) else None

    def synchronize(self) -> None:
        """Wait for the work in the stream; raises the error of work that failed."""
        runtime = self.device.runtime
        if has_streams(runtime):
            runtime.synchronize_stream(self.handle, self.device.index)
        else:
            runtime.synchronize(self.device.index)

    def record_event(self) -> Event:
        """Return an event behind the work now in the stream."""
        event = Event(self.device)
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Make later work in the stream wait for ``event``."""
        event.wait(self)

    def wait_stream(self, other: Stream) -> None:
        """Make later work in this stream wait for the work now in ``other``."""
        self.wait_event(other.record_event())

    def __repr__(self) -> str:
        return f"<Stream of {self.device}{'' if self.handle is not None else ', implicit'}>"


@contextmanager
def stream(chosen: Stream | None = None) -> Iterator[Stream]:
    """Within the ``with`` block, work on the stream's device goes into ``chosen``, in this thread.

    None: into a new stream of the default device, which begins behind the work now in the current one.

    >>> import tensorbus as tb
    >>> x = tb.ones((2,))
    >>> with tb.stream() as side:
    ...     y = x * 2
    >>> side.record_event().wait()
    >>> (y + 1).tolist()
    [3.0, 3.0]
    """
    if chosen is not None and not isinstance(chosen, Stream):
        raise DeviceError(
            f"stream: 'chosen' must be a tensorbus.Stream or None, got {type(chosen).__name__}."
        )
    if chosen is None:
        chosen, begun = Stream(), Event()
        begun.record()
        chosen.wait_event(begun)
    runtime, index = chosen.device.runtime, chosen.device.index
    if not has_streams(runtime):
        yield chosen
        return
    replaced = runtime.use_stream(chosen.handle, index)
    try:
        yield chosen
    finally:
        runtime.use_stream(replaced, index)


class Event:
    """A point in a stream: what comes before it has been done once the event is reached.

    >>> import tensorbus as tb
    >>> start, end = tb.Event(), tb.Event()
    >>> start.record()
    >>> y = tb.ones((8, 8)) @ tb.ones((8, 8))
    >>> end.record()
    >>> start.elapsed_time(end) > 0  # milliseconds
    True
    """

    __slots__ = ("_handle", "_time", "device")

    def __init__(self, device: DeviceLike = None) -> None:
        self.device: Device = find_device(device)
        self._handle: Any = None
        self._time: float | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Put the event behind the work now in ``stream`` (None: the current one), or move it there."""
        self._same_device(stream, "recorded in a stream")
        runtime, index = self.device.runtime, self.device.index
        if has_streams(runtime):
            self._handle = runtime.record_event(stream.handle if stream is not None else None, index)
        else:
            runtime.synchronize(index)
        self._time = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Make later work in ``stream`` (None: the current one) wait for the event."""
        self._same_device(stream, "waited for by a stream")
        self._recorded()
        runtime, index = self.device.runtime, self.device.index
        if has_streams(runtime):
            runtime.wait_event(self._handle, stream.handle if stream is not None else None, index)

    def synchronize(self) -> None:
        """Block until the event is reached."""
        self._recorded()
        runtime = self.device.runtime
        if has_streams(runtime):
            runtime.synchronize_event(self._handle, self.device.index)

    def is_done(self) -> bool:
        """Return whether the event is reached."""
        self._recorded()
        runtime = self.device.runtime
        if has_streams(runtime):
            return runtime.event_done(self._handle, self.device.index)
        return True

    def elapsed_time(self, end: Event) -> float:
        """Return the milliseconds from this event to ``end``, waiting for both."""
        if end.device != self.device:
            raise DeviceError(f"events of {self.device} and {end.device} have no common clock.")
        self.synchronize()
        end.synchronize()
        runtime = self.device.runtime
        if has_streams(runtime):
            return runtime.elapsed_time(self._handle, end._handle, self.device.index)
        return 1000.0 * (end._recorded() - self._recorded())

    def _recorded(self) -> float:
        if self._time is None:
            raise DeviceError(f"the event of {self.device} was not recorded; call record() first.")
        return self._time

    def _same_device(self, stream: Stream | None, what: str) -> None:
        if stream is not None and stream.device != self.device:
            raise DeviceError(f"an event of {self.device} cannot be {what} of {stream.device}.")

    def __repr__(self) -> str:
        return f"<Event of {self.device}{'' if self._time is not None else ', not recorded'}>"
