"""A group of ranks: what connects them by the tensors' device, the order of calls, records of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from ... import plugins
from ...autograd.engine import no_grad
from ...backend_interface.communication import Communicator
from ...devices.device import Device, get_default_device
from ...devices.stream import Event, Stream, stream
from ...devices.stream_capture import active_capture
from ...dispatch.host_fallback import fallback, fallback_mode
from ...dispatch.modes import is_value_mode
from ...dispatch.remarks import remark
from ...errors import ArgumentError, DeviceError, DistributedError
from ...interchange.transfer import forget_use
from ...plugins import host_type
from ...system.weak_tables import WeakValues
from ...tensor.grad_mode import grad_enabled
from ...tensor.tensor import Tensor
from ...tracing.active_modes import active_modes
from ...tracing.active_tracer import active_tracer
from ...tracing.known_by_identity import KnownByIdentity
from . import teardown
from .agreements import Agreements
from .captured_collectives import CapturedCollectives
from .communicator_contract import verdict_of
from .comparison import Parts
from .connection import Connection
from .lanes import Lanes, Peer, peers_of
from .records import MESSAGES, Record
from .work import Place, Work, event_of
from .world import World, current

T = TypeVar("T")
_groups: Final[WeakValues[str, ProcessGroup]] = WeakValues()
"""By name: compiled programs hold names."""
_GLANCE: Final = 0.25
"""Seconds between two looks at whether a group has ended, while its ranks agree on what connects them."""
WORLD: Final = "world"
"""The name of the group of all ranks."""


class ProcessGroup(KnownByIdentity):
    """Ranks that communicate with each other; ``rank`` is this one's place among ``ranks``.

    ``new_group`` makes one. Every collective of a group is called by all of its ranks, in the same order.

    >>> import tensorbus as tb
    >>> def rank() -> tuple[ProcessGroup, int, int]:
    ...     group = tb.distributed.new_group([1, 0])
    ...     return group, group.rank, group.size
    >>> tb.distributed.run_ranks(rank, 2)[1]
    (ProcessGroup('1,0#1', ranks=[1, 0], rank=0), 0, 2)
    """

    def __init__(self, world: World, name: str, ranks: tuple[int, ...], timeout: float | None = None) -> None:
        """``timeout`` is the seconds that its collectives wait for other ranks; None: as all others.

        Raises ``DistributedError`` where the ranks have been ended: nobody would come.
        """
        if world.ended:
            raise DistributedError(f"group {name!r}: the ranks were ended: {world.ended}.")
        self.world, self.ranks = world, ranks
        self.timeout = world.timeout if timeout is None else timeout
        self.label, self.name = name, name + world.token
        self.rank, self.size = ranks.index(world.rank), len(ranks)
        self.label_counts: dict[str, int] = {}
        """How many modules of a description its ranks have spread."""
        self.agreements = Agreements(world, name, ranks, self.timeout)
        """What connects the ranks, by the device type of tensors."""
        self._chosen, self._staged = self.agreements.chosen, self.agreements.staged
        self._lanes = Lanes(f"tensorbus-group-{name}-{world.rank}", world)
        self._last: Place | None = None
        """The progress of the last queued call that is no message with a lane of its own."""
        self._inline: int | None = None
        """The thread that runs a queued call itself, while it does."""
        self._sides: dict[Device, Stream] = {}
        self.monitored_barriers = 0
        self._ended = ""
        world.groups[name] = _groups[self.name] = self

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessGroup:
        """Return the group itself: copies of what communicates do so among the same ranks."""
        return self

    def __bool__(self) -> bool:
        """Whether this rank is in the group."""
        return self.rank >= 0

    def __repr__(self) -> str:
        return f"ProcessGroup({self.label!r}, ranks={[*self.ranks]}, rank={self.rank})"

    def run(
        self, operation: str, tensors: Sequence[Tensor], call: Callable[[Communicator[Any]], T],
        terms: str = "", needs: Sequence[int] | None = None, parts: Parts | None = None,
    ) -> T:  # fmt: skip
        """Do ``call`` with what connects the group on the tensors' device, after all that was queued.

        ``terms`` says what all ranks ask for alike: reductions, shapes, dtypes. ``needs`` are the places of
        the ranks that have to take part; None: all. ``parts`` is what is sent to each, and expected of each.
        """
        if active_modes:
            _end_capture(operation)
        here = threading.get_ident()
        if here != self._inline and not self._lanes.is_run_by(here):
            peers = peers_of(operation, needs)
            last = self._lanes.last(peers[0]) if peers and self._has_lanes(tensors) else self._last
            if last is not None:
                if not last.is_submitted():
                    work = self.submit(operation, tensors, call, None, terms, needs, parts=parts)
                    result: T = work.wait()
                    return result
                last.follow()
        return self._call(operation, tensors, call, terms, needs, parts=parts)

    def run_into(
        self, operation: str, x: Tensor, prepare: Callable[[Any], Callable[[], None] | None],
        terms: str,
    ) -> bool:  # fmt: skip
        """Do a collective that writes into memory that is there already; False where that cannot be.

        ``prepare`` returns what gives it to the device, None where the communicator cannot do it. Where the
        device records the work of this thread, that is what it does, and it is numbered at each run.
        """
        connection = self._chosen.get(x.device.type)
        if connection is None or not connection.is_capturable or x.device.type in self._staged:
            return False
        with no_grad():
            give = prepare(connection.communicator)
        if give is None:
            return False
        capture = active_capture()
        if capture is None:
            self.run(operation, [x], lambda _: give(), terms)
            return True
        calls = capture.around.get(connection)
        if calls is None:
            calls = capture.around[connection] = CapturedCollectives(self, connection, x.device)
            connection.captures.add(capture)
        assert isinstance(calls, CapturedCollectives)
        calls.asked.append(f"{operation} {terms}")
        give()
        return True

    def writes_over(self, device_type: str) -> bool:
        """Return whether ``run_into`` may be given the memory of its operand, on tensors of this type."""
        return bool(getattr(getattr(self._chosen.get(device_type), "communicator", None), "in_place", False))

    def check(self, operation: str) -> None:
        """Raise where the group has ended."""
        if self._ended:
            raise DistributedError(f"{operation}: {self!r} has ended: {self._ended}.")

    def follow(self) -> None:
        """Let what is queued next in the current stream follow what was queued beside it."""
        if self._last is not None and not self._lanes.is_run_by(threading.get_ident()):
            self._last.follow()

    def submit(
        self, operation: str, tensors: Sequence[Tensor], call: Callable[[Communicator[Any]], T],
        finish: Callable[[Any], Any] | None = None, terms: str = "", needs: Sequence[int] | None = None,
        peers: Sequence[Peer] | None = None, post: Callable[[Any], None] | None = None,
        needs_one: bool = False, parts: Parts | None = None,
    ) -> Work:  # fmt: skip
        """Queue ``call`` and return its handle; ``finish`` gets the result in the thread that waits.

        ``peers`` are those of its messages, where they are not one with each of ``needs``; ``post`` tells the
        communicator of them, in the order of calls, where they have threads of their own. ``needs_one``: one
        of ``needs`` is enough.
        """
        if active_modes:
            _end_capture(operation)
        if tensors and is_value_mode(tensors[0].device.type):
            raise _without_memory(operation, tensors[0].device)
        return self.queue(
            lambda: self._call(operation, tensors, call, terms, needs, needs_one, parts), finish, tensors,
            peers_of(operation, needs) if peers is None else peers, post,
        )  # fmt: skip

    def queue(
        self, call: Callable[[], Any], finish: Callable[[Any], Any] | None = None,
        tensors: Sequence[Tensor] = (), peers: Sequence[Peer] = (),
        post: Callable[[Any], None] | None = None,
    ) -> Work:  # fmt: skip
        """Queue any call that communicates in this group, on ``tensors``; returns its handle.

        Where the communicator queues its work on the device, the call is made at once, in a stream beside
        the current one; else a thread of the group makes it: for messages, one of their ``peers``.
        """
        if active_modes:
            _end_capture("a queued collective")
        device = tensors[0].device if tensors else None
        if device is not None and is_value_mode(device.type):
            raise _without_memory("a queued collective", device)
        connection = None if device is None else self._chosen.get(device.type)
        begun = None if device is None else event_of(device)
        work = Work(finish, self._check)
        run = partial(self._beside, call, tensors, begun, fallback_mode(), work)
        queues = connection is not None and connection.queues
        if self.world.alone or (queues and self._is_idle()):
            self._inline = threading.get_ident()
            try:
                work._run(run)
            finally:
                self._inline = None
            self._last = work.place
            return work
        if device is None or queues:
            peers = ()
        if not peers or connection is None:
            self._last = work.place
        has_lanes = at_once = None
        if device is not None and connection is None:
            has_lanes = partial(self._connects_lanes, device, work.place)
        if device is not None and post is not None:
            at_once = partial(self._post, post, device, fallback_mode())
        self._lanes.put(work, run, peers, partial(self.check, "a queued collective"), has_lanes, at_once)
        return work

    def _post(self, post: Callable[[Any], None], device: Device, mode: str) -> None:
        """Tell the communicator of tensors on ``device``, which is connected, of a message."""
        staged = self._staged.get(device.type)
        if staged is not None:
            with fallback(mode):
                staged.check("recv", device)
        post(staged or self._chosen[device.type].communicator)

    def _connects_lanes(self, device: Device, place: Place) -> bool:
        """Connect the group, and return whether messages have lanes: not where the device has queues."""
        record = Record(self.label, 0, "connect", (), "", str(device), needs=self.ranks)
        try:
            has_lanes = not self.agreements.connection(device, record, "", True).queues
        except BaseException as error:
            record.failure, record.ended = f"{type(error).__name__}: {error}", time.monotonic()
            self.world.records.add(record)
            raise
        if has_lanes and self._last is place:
            self._last = None
        return has_lanes

    def _has_lanes(self, tensors: Sequence[Tensor]) -> bool:
        connection = self._chosen.get(tensors[0].device.type)
        return connection is not None and not connection.queues

    def _is_idle(self) -> bool:
        return self._last is None or self._last.is_submitted()

    def connection(self, device: Device, record: Record | None = None, terms: str = "") -> Connection:
        """Return what connects the ranks on tensors of ``device``, connected at the first use of its type.

        All ranks call it at the same point, for the call ``record`` if there is one; a group whose ranks lie
        on several device types agrees on one that takes all of them, which is that of each of them then, on
        every rank. Raises ``DistributedError`` where none does, saying why not each.
        """
        call = record or Record(self.label, 0, "connect", (), "", str(device), needs=self.ranks)
        return self.agreements.connection(device, call, terms, call.operation in MESSAGES)

    def connections(self) -> list[Connection]:
        """Return what the group is connected by so far, and what it is about to be connected by."""
        return [*self.agreements.connections.values(), *self.agreements.connecting]

    def takes(self, device_type: str) -> bool:
        """Return whether something connects the ranks on tensors of ``device_type``; asks no other rank."""
        meeting = self.agreements.meeting()
        return any(
            verdict_of(name, each, device_type, meeting) is True
            for name, each in plugins.communicators().items()
        )

    def drain(self) -> None:
        """Wait for all calls that were queued, as long as a call may take."""
        self._lanes.drain()

    def close(self, reason: str = "", at_once: bool = False) -> None:
        """Give back the connections, once what was queued is done or ``at_once``.

        With a ``reason`` what is queued, or waits, ends with an error saying it. A closed group stays closed.
        """
        if self._ended:
            return
        if not reason and not at_once:
            self.drain()
        self._ended = self.agreements.ended = reason or "the group was closed"
        for connection in self.connections():
            if reason or connection.communicator is None:
                connection.fail(DistributedError(f"{self!r} has ended: {reason}."), reason)
            else:
                with suppress(DistributedError, DeviceError):  # whoever waits for a value is told
                    connection.finish()
                connection.close()
            self.world.roll_call.closed(connection)
        self._lanes.end()
        self.world.groups.pop(self.label, None)
        _groups.pop(self.name)

    def leave_to_parent(self, reason: str) -> None:
        """End in the child of a fork, and touch nothing: the connections are the parent's."""
        self._ended = self.agreements.ended = reason
        _groups.pop(self.name)

    def _call(
        self, operation: str, tensors: Sequence[Tensor], call: Callable[[Communicator[Any]], T], terms: str,
        needs: Sequence[int] | None, needs_one: bool = False, parts: Parts | None = None,
    ) -> T:  # fmt: skip
        self.check(operation)
        first = tensors[0] if tensors else None
        if first is not None and is_value_mode(first.device.type):
            raise _without_memory(operation, first.device)
        record = Record(
            self.label, 0, operation, tuple([x.shape for x in tensors]),
            "" if first is None else str(first.dtype), "" if first is None else str(first.device),
            needs=self.ranks if needs is None else tuple([self.ranks[place] for place in needs]),
            needs_one=needs_one,
        )  # fmt: skip
        self.world.records.add(record)
        try:
            teardown.wait()
            device = self._device() if first is None else first.device
            connection = self.connection(device, record, terms)
            connection.check()
            staged = self._staged.get(device.type)
            if staged is not None and first is not None:
                staged.check(operation, device)
        except BaseException as error:
            record.failure, record.ended = f"{type(error).__name__}: {error}", time.monotonic()
            raise
        communicator = staged or connection.communicator
        if operation in MESSAGES and not connection.queues:
            return self._make(connection, communicator, record, call, terms, parts, device)
        with connection.turn:
            return self._make(connection, communicator, record, call, terms, parts, device)

    def _make(
        self, connection: Connection, communicator: Communicator[Any], record: Record,
        call: Callable[[Communicator[Any]], T], terms: str, parts: Parts | None, device: Device,
    ) -> T:  # fmt: skip
        """Make a call, number it, and note how it ends."""
        try:
            connection.check()
        except DistributedError as error:  # of a call that this one has waited for
            connection.stop(record, error)
            raise
        if record.operation not in MESSAGES:
            self.agreements.begin(record, device.type)
        connection.start(record, terms, parts)
        remark(lambda: f"{record}, by {connection.name}")
        is_barrier = record.operation == "barrier"
        try:
            if is_barrier and not (connection.compares or connection.comparison or self.world.alone):
                connection.compare()
            recorded = grad_enabled.set(False)
            try:
                result = call(communicator)
            finally:
                grad_enabled.reset(recorded)
            connection.leave(record, device)
            if is_barrier and connection.queues:
                connection.finish()
                connection.compare_done()
        except BaseException as error:
            if type(error) is DistributedError:
                connection.differ(record, error)
            elif not isinstance(error, Exception):
                connection.interrupt(record, error)
            connection.stop(record, connection.failure or error)
            if isinstance(error, DistributedError):
                connection.check()
            raise
        return result

    def _device(self) -> Device:
        """Return the device of calls without tensors: what is connected already comes first."""
        for connection in list(self._chosen.values()):
            if connection.device is not None:
                return connection.device
        host = host_type()
        return get_default_device() if host is None else Device(host, 0)

    def _beside(
        self, call: Callable[[], Any], tensors: Sequence[Tensor], begun: Event | None, mode: str, work: Work
    ) -> Any:
        """Make a call that was queued; what it gives to the device runs in a stream of the group's own.

        Its operands are held until that is done: so nobody waits who takes their memory.
        """
        with fallback(mode):
            if begun is None:
                return call()
            device = tensors[0].device
            connection = self.connection(device)
            if not connection.queues:
                begun.wait()
                result = call()
                done = event_of(device)
                if done is not None:  # whoever waits for the call uses its result in another stream
                    done.synchronize()
                return result
            side = self._sides.get(device)
            if side is None:
                side = self._sides[device] = Stream(device)
            side.wait_event(begun)
            with stream(side):
                result = call()
                for x in tensors:
                    forget_use(x)
            reached = work.place.reached = side.record_event()
            connection.hold(reached, tensors)
            return result

    def _check(self) -> None:
        for connection in self.connections():
            connection.check()


def _without_memory(operation: str, device: Device) -> ArgumentError:
    return ArgumentError(
        f"{operation}: a tensor on {device} stands for others, and has no memory to send. Inside of vmap"
        f" there are the collectives of tensorbus.distributed.functional, and those with one result; of a"
        f" distributed tensor x.to_local() is this rank's part."
    )


def _end_capture(operation: str) -> None:
    """End what is being captured here: what communicates and is no op would be done at the first run only."""
    active = active_tracer()
    if active is not None:
        active.materialize(f"{operation} communicates outside of programs, unlike collectives of functional,")


def get_group(name: str = WORLD) -> ProcessGroup:
    """Return a group of this rank by its name; that of all ranks is made when it is first asked for."""
    group = _groups.get(name)
    if group is not None:
        return group
    world = current()
    if name == WORLD:
        return world.groups.get(WORLD) or ProcessGroup(world, WORLD, tuple(range(world.size)))
    raise DistributedError(
        f"rank {world.rank} is in no group {name!r}, or it has ended; it has {[*world.groups]}."
    )
