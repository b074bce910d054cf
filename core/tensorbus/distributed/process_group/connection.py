"""One communicator of a group: its calls in order, what the device still works on, and its end."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from zlib import crc32

from ...backend_interface.capabilities import (
    SupportsInterruptibleWaits,
    SupportsLateErrors,
    SupportsReadChecks,
)
from ...backend_interface.communication import Rendezvous
from ...devices.device import Device
from ...devices.stream import Event
from ...devices.stream_capture import StreamCapture
from ...errors import DeviceError, DistributedError, DistributedTimeoutError
from ...system.rank_of_thread import rank_of_thread
from ...system.weak_tables import WeakSet
from ...tensor.tensor import Tensor
from . import teardown
from .comparison import Comparison, Parts, first_difference, numbered
from .fingerprint_board import ENTRIES
from .records import MESSAGES, Record
from .work import pauses, reach

_PATIENCE: Final = 1.0
"""Seconds that a rank whose call has raised waits for what the others asked for."""
_ABORT_SECONDS: Final = 10.0
"""Seconds that a program waits for the end of what it is told has failed."""
_CLOSE_SECONDS: Final = 2.0
"""Seconds that a program waits for a library that queues to give back a group."""
_SLACK: Final = 2.0
"""Seconds beyond a call's time in which the watch ends it."""
_COMPARED: Final = 64
"""Of how many collectives the texts are compared in barriers."""


class Connection:
    """The connection of a group's ranks on some device types, called ``name``; ``meeting`` says who meets.

    ``fingerprint`` is that of all collectives so far: it differs where ranks asked for different things.
    """

    def __init__(self, name: str, communicator: Any, meeting: Rendezvous, rank: Any = None) -> None:
        """``communicator`` is None while the ranks agree on one; ``rank`` stands for one that is a thread."""
        self.name, self.communicator, self.meeting, self.thread_rank = name, communicator, meeting, rank
        self.queues = bool(getattr(communicator, "queues", False))
        self.compares = not self.queues and getattr(communicator, "expect", None) is not None
        """Whether the communicator compares all that ranks ask for, before any has a result."""
        self.is_capturable = self.queues and bool(getattr(communicator, "is_capturable", False))
        self.captures: Final[WeakSet[StreamCapture]] = WeakSet()
        """What devices have recorded of the communicator's work, and run as a whole."""
        self.device: Device | None = None
        """Where the tensors of the first call lay."""
        self.sequence = self.messages = 0
        self.fingerprint = 0
        self._asked: deque[tuple[int, int, Sequence[str]]] = deque(maxlen=1024)
        """Of the last calls: the sequence and the fingerprint before it, and what was asked."""
        is_alone = meeting.size == 1 or bool(getattr(meeting.store, "alone", False))
        self.comparison: Final = Comparison(meeting) if self.queues and not is_alone else None
        """Of what the ranks ask for, where the communicator only queues."""
        self._done = 0
        """The last collective that the device is known to be done with."""
        self.turn: Final = threading.RLock()
        """Held by the thread that makes a call: ranks have to come to collectives in one order."""
        self.running: dict[int, Record] = {}
        """Calls that the host is in, by identity."""
        self.queued: deque[tuple[Record, Event]] = deque()
        """Calls that a device may still work on, oldest first, each with the event behind it."""
        self.failure: DistributedError | None = None
        self._failed = 0.0
        """When it failed."""
        self._held: deque[tuple[Event, Sequence[Tensor]]] = deque()
        """Operands of calls in streams beside the program's, each with the event behind the call."""
        self._announced, self._aborted = threading.Event(), threading.Event()
        self._is_untold = False
        """Whether ``compare_done`` is still to raise ``failure``, where devices do not by themselves."""
        self._late: list[tuple[SupportsLateErrors, int]] = []
        """Devices that raise ``failure`` where a value is read."""
        self._waited_for: set[Device] = set()
        """Devices that were given work: the host may wait for them."""
        self._lock = threading.Lock()

    def start(self, record: Record, terms: str, parts: Parts | None = None) -> None:
        """Number a call that begins now. ``terms`` says what all ranks ask for alike; ``parts`` what not."""
        record.communicator, record.started = self.name, time.monotonic()
        with self._lock:
            if record.operation in MESSAGES:
                self.messages += 1
                record.sequence = self.messages
            else:
                self._count(record, (f"{record.operation} {terms}" if terms else record.operation,), parts)
            self.running[id(record)] = record
        self._publish_waiting()

    def start_program(self, record: Record, asked: Sequence[str]) -> None:
        """Number the collectives of a program that begins now as a whole; ``asked`` are theirs, in order."""
        record.communicator, record.started, record.count = self.name, time.monotonic(), len(asked)
        with self._lock:
            self._count(record, asked)
            self.running[id(record)] = record
        self._publish_waiting()

    def _count(self, record: Record, asked: Sequence[str], parts: Parts | None = None) -> None:
        before, fingerprint = self.sequence, self.fingerprint
        self._asked.append((before, fingerprint, asked))
        self.sequence += len(asked)
        if self.comparison is None:
            self.fingerprint = crc32("".join(asked).encode(), fingerprint)  # as of one after the other
        else:
            each = [fingerprint := crc32(text.encode(), fingerprint) for text in asked]
            self.fingerprint = fingerprint
            self.comparison.publish(before + 1, each, parts)
        record.sequence, record.fingerprint, record.asked = self.sequence, self.fingerprint, asked[-1]

    def latest(self, count: int) -> list[tuple[int, int, str]]:
        """Return of the last collectives the sequence, the fingerprint after it, and what was asked."""
        with self._lock:
            calls = list(self._asked)
        entries: list[tuple[int, int, str]] = []
        while calls and len(entries) < count:
            entries[:0] = numbered(*calls.pop())
        return entries[-count:]

    def _of(self, sequence: int) -> tuple[int, int, str] | None:
        """Return the entry of ``latest`` of one collective; None where it is still to come, or long ago."""
        with self._lock:
            calls = list(self._asked)
        for before, fingerprint, asked in calls:
            if before < sequence <= before + len(asked):
                return numbered(before, fingerprint, asked)[sequence - before - 1]
        return None

    def _publish_waiting(self) -> None:
        """Wait until what this rank asks for is published: for others, where it is far ahead of them."""
        comparison = self.comparison
        if comparison is None or not comparison.is_joined or not comparison.is_waiting:
            return
        for _ in pauses():
            self.check()
            with self._lock:
                if comparison.publish_waiting():
                    return

    def _join(self) -> None:
        """Meet the other ranks behind the first call, to compare what all ask for from now on."""
        with self.turn:
            if self.comparison is None or self.comparison.is_joined:
                return
            try:
                self.comparison.join(self.check)
                self._publish_waiting()
            except DistributedError as error:
                self.fail(error)
                raise

    def compare_done(self) -> None:
        """Compare all collectives that the device is done with, before the host has a value behind them.

        Waits for ranks that have not called yet. Raises ``DistributedError``, which says what differs. What
        another rank of this process reads is its own affair.
        """
        if self.thread_rank is not None and rank_of_thread() not in (None, self.thread_rank):
            return
        if self._is_untold:
            self._raise_failure()
        comparison = self.comparison
        if comparison is None or comparison.agreed >= self.sequence:
            return
        if self.failure is not None:
            self._announced.wait(_PATIENCE)  # the device raises it behind this
            return
        done = self._last_done()
        if comparison.agreed >= done or (comparison.agrees() and comparison.agreed >= done):
            return
        _, fingerprint, asked = self._of(done) or (done, 0, "")
        record = Record(
            self.meeting.name, done, "compare", (), "", str(self.device or ""), self.name, asked=asked,
            needs=self.meeting.ranks, fingerprint=fingerprint,
        )  # fmt: skip
        with self._lock:
            self.running[id(record)] = record
        try:
            for _ in pauses():
                self._raise_failure()
                if comparison.agrees():
                    if comparison.agreed >= done:
                        return
                else:
                    self._tell_difference(comparison)
        finally:
            with self._lock:
                self.running.pop(id(record), None)

    def _last_done(self) -> int:
        """Return the last collective that the device is done with."""
        with self._lock:
            for record, event in reversed(self.queued):
                if record.asked and event.is_done():
                    self._done = max(self._done, record.sequence)
                    break
            return self._done

    def _tell_difference(self, comparison: Comparison) -> None:
        """Fail by what the ranks do not agree on, once they have said it."""
        error = comparison.difference(self.latest(ENTRIES))
        if error is not None:
            self.fail(error)

    def _raise_failure(self) -> None:
        """Raise what the connection has failed by, if it has, where a value is read."""
        failure = self.failure
        if failure is not None:
            self._announced.wait(_PATIENCE)
            self._is_untold = False
            for runtime, index in self._late:
                runtime.not_later(failure, index)
            raise type(failure)(str(failure)) from None

    def asked(self, sequence: int) -> str:
        """Return what this rank asked for by a collective; "" where it has not yet, or it is long ago."""
        entry = self._of(sequence)
        return "" if entry is None else entry[2]

    def is_as(self, sequence: int, fingerprint: int) -> bool:
        """Return whether this rank has asked for the same up to a collective, as far as it knows."""
        entry = self._of(sequence)
        return entry is None or entry[1] == fingerprint

    def oldest(self) -> Record | None:
        """Return the call that has been under way the longest; None where there is none."""
        with self._lock:
            records = [*self.running.values(), *(record for record, _ in list(self.queued)[:1])]
        return min(records, key=lambda record: record.started, default=None)

    def finished(self) -> int:
        """Return how many collectives have come to their end here, of those that began first."""
        with self._lock:
            open_ = [*self.running.values(), *(record for record, _ in self.queued)]
            if self.failure is not None:
                return 0
            return min((r.sequence - r.count for r in open_ if r.asked), default=self.sequence)

    def compare(self) -> None:
        """Compare all collectives so far with those of the other ranks, through the store.

        All ranks call it behind the same collective. Raises ``DistributedError``, which says what differs.
        """
        error = first_difference(self.meeting, self.sequence, self.latest(_COMPARED))
        if error is not None:
            self.fail(error)
            raise error

    def differ(self, record: Record, error: DistributedError) -> None:
        """Fail by a collective that has raised; where the ranks ask for different things, it says for what.

        They tell each other through the store; those that do not within a second are left out.
        """
        if self.failure is not None or not record.asked:
            return
        meeting = self.meeting
        keys = [f"{meeting.name}/asked/{record.sequence}/{place}" for place in range(meeting.size)]
        with suppress(DistributedError):
            meeting.store.set(keys[meeting.rank], json.dumps([record.asked, str(record)]).encode())
            with suppress(DistributedTimeoutError):
                meeting.store.wait(keys, _PATIENCE)
            calls = [
                (rank, *json.loads(meeting.store.get(key, _PATIENCE)))
                for rank, key in zip(meeting.ranks, keys, strict=True)
                if meeting.store.check([key])
            ]
            if len({asked for _, asked, _ in calls}) > 1:
                text = "; ".join(f"rank {rank}: {call}" for rank, _, call in calls)
                error = DistributedError(f"the ranks ask for different things: {text}.")
        self.fail(error)

    def interrupt(self, record: Record, error: BaseException) -> None:
        """Fail by Ctrl-C in a call that a device may have been given: it would keep later work waiting there.

        The program is told by ``error``, and by no value that it reads.
        """
        if self.queues:
            self.fail(DistributedError(f"{record}: {type(error).__name__} came to it on this rank."))
            with suppress(DistributedError):
                self.check()

    def leave(self, record: Record, device: Device | None) -> None:
        """Note that a call has returned; where it only queued its work, an event marks the end of that."""
        if self.comparison is not None and not self.comparison.is_joined:
            self._join()
        with self._lock:
            self.running.pop(id(record), None)
            if self.queues and device is not None:
                event = Event(device)
                event.record()
                record.is_queued = True
                self.queued.append((record, event))
                if device not in self._waited_for:
                    self._waited_for.add(device)
                    if isinstance(device.runtime, SupportsInterruptibleWaits):
                        device.runtime.make_waits_interruptible(self.look, device.index)
                    if isinstance(device.runtime, SupportsReadChecks):
                        device.runtime.check_reads(self.compare_done, device.index)
                return
        record.ended = time.monotonic()

    def stop(self, record: Record, error: BaseException) -> None:
        """Note that a call has raised."""
        record.failure = f"{type(error).__name__}: {error}"
        with self._lock:
            self.running.pop(id(record), None)
        record.ended = time.monotonic()

    def last_event(self) -> Event | None:
        """Return the event behind what was queued last; None where nothing is under way."""
        with self._lock:
            return self.queued[-1][1] if self.queued else None

    def hold(self, reached: Event, tensors: Sequence[Tensor]) -> None:
        """Hold operands until the event is reached."""
        self.drain()
        with self._lock:
            self._held.append((reached, tensors))

    def drain(self) -> None:
        """Note the end of what the device is done with, and let its operands go."""
        with self._lock:
            while self._held and self._held[0][0].is_done():
                self._held.popleft()
            while self.queued and self.queued[0][1].is_done():
                record, _ = self.queued.popleft()
                record.ended = time.monotonic()
                if record.asked:
                    self._done = max(self._done, record.sequence)

    def _forget(self, error: DeviceError) -> None:
        with self._lock:
            for record, _ in self.queued:
                record.failure, record.ended = f"{type(error).__name__}: {error}", time.monotonic()
            self.queued.clear()
            self._held.clear()

    def finish(self) -> None:
        """Wait on the host for all that is queued. Raises what the connection has failed by.

        The communicator is asked once all is there: what it tells of may be as young.
        """
        event = self.last_event()
        if event is not None:
            reach(event, self.check)
            self.drain()
        self.look()
        self.check()

    def check(self) -> None:
        """Raise what the connection has failed by, if it has; then no value that is read raises it again."""
        failure = self.failure
        if failure is not None:
            self._aborted.wait(_ABORT_SECONDS)  # new work on the device could keep the abort waiting
            self._raise_failure()

    def fail(self, error: DistributedError, reason: str = "") -> None:
        """End the connection: what waits in it, and later calls, raise ``error``.

        Values that a device was still to make behind its calls raise it where the host reads them. The
        communicator is told ``reason``, or the error's text.
        """
        with self._lock:
            if self.failure is not None:
                return
            self.failure, self._failed = error, time.monotonic()
            late = {event.device for _, event in self.queued}
        if self.comparison is not None:
            self.comparison.end()
        if self.queues and self.device is not None:
            late.add(self.device)
        for device in late:
            runtime = device.runtime
            if isinstance(runtime, SupportsLateErrors):
                runtime.raise_later(error, device.index)
                self._late.append((runtime, device.index))
            elif isinstance(runtime, SupportsReadChecks):
                self._is_untold = True
        self._announced.set()
        with suppress(DistributedError):  # the other ranks find it there, if the store still is
            self.meeting.store.set(f"{self.meeting.name}/failed", str(error).encode())
        # A library may wait for the device in its abort: for work of other groups too, whose end is looked
        # after by the thread that calls this.
        abort = partial(self._abort, error, reason or str(error).removesuffix("."))
        teardown.begin(abort, _ABORT_SECONDS if self.queues else 0.0)
        self._aborted.wait(_PATIENCE)
        for device in late:  # if the abort does not end the device's work, what waits for that ends here
            if isinstance(device.runtime, SupportsInterruptibleWaits):
                device.runtime.interrupt_waits(device.index)

    def close(self) -> None:
        """Give back what the connection holds, once everything is done."""
        self.release()
        if self.comparison is not None:
            self.comparison.close()
        if self.queues:
            teardown.close_within(self.communicator.close, _CLOSE_SECONDS)
        else:
            self.communicator.close()

    def release(self) -> None:
        """Give back what devices have recorded: a library may wait for the end of that in its own."""
        for capture in list(self.captures):
            capture.release()

    def _abort(self, error: DistributedError, reason: str) -> None:
        try:
            if len(self.captures):  # beside the abort, which ends what they may wait for
                teardown.begin(self.release)
            if self.communicator is not None:
                self.communicator.abort(reason)
        except Exception as problem:  # the error that is told matters more, and tells of this one
            error.add_note(f"{self.name} could not end its work: {type(problem).__name__}: {problem}")
        finally:
            self._aborted.set()

    def look(self) -> None:
        """Fail where the communicator tells of a problem, or the watch should long have ended a call.

        What the watch asks a device may wait there. Behind the failure, end waits for what is never done.
        """
        if self.failure is not None:
            self._end_waits()
            return
        problem = getattr(self.communicator, "problem", None)
        text = problem() if problem is not None else ""
        if text:
            self.fail(DistributedError(f"group {self.meeting.name!r}: {self.name} failed: {text}."))
        else:
            self._end_late(time.monotonic() - _SLACK)

    def _end_waits(self) -> None:
        """End waits of the host for a device that is still at work of the group, long after its failure.

        They may have begun when everybody had been told of it.
        """
        if time.monotonic() - self._failed < _ABORT_SECONDS:
            return
        with self._lock:
            last = self.queued[-1][1] if self.queued else None
        with suppress(DeviceError):  # raised where it is waited for
            if last is not None and not last.is_done():
                runtime = last.device.runtime
                if isinstance(runtime, SupportsInterruptibleWaits):
                    runtime.interrupt_waits(last.device.index)

    def overdue(self, now: float) -> None:
        """Note what the device is done with, and look."""
        try:
            self.drain()
        except DeviceError as error:  # raised as well where the device's values are read
            self._forget(error)
        if self.failure is None and self.comparison is not None and not self.comparison.agrees():
            self._tell_difference(self.comparison)
        if self.failure is None:
            self._end_late(now)
            self.look()

    def _end_late(self, now: float) -> None:
        """Fail where the oldest call has taken longer than a call may."""
        late = [record for record, _ in list(self.queued)[:1]]
        if self.queues:
            late += list(self.running.values())
        for record in late:
            if now - record.started > self.meeting.timeout:
                text = f"{record}: a rank did not come within {self.meeting.timeout:g} seconds"
                self.fail(DistributedTimeoutError(
                    f"{text}. It works still, waits elsewhere, or is gone; tensorbus.distributed.records() on"
                    f" each rank shows what it did last."
                ), text)  # fmt: skip
                return
