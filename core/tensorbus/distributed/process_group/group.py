"""A group of ranks: what connects them by the tensors' device, the order of calls, records of them."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ... import plugins
from ...autograd.engine import no_grad
from ...backend_interface.communication import Communicator, CommunicatorFactory, Rendezvous
from ...errors import ArgumentError, DistributedError, DistributedTimeoutError
from ...system.weak_tables import WeakValues
from ...tensor.tensor import Tensor
from .work import Work
from .world import World, current, in_world

T = TypeVar("T")
_groups: Final[WeakValues[str, ProcessGroup]] = WeakValues()
"""By name: compiled programs hold names."""
_GLANCE: Final = 0.5
"""Seconds between two looks at whether a group has ended, while its ranks agree on what connects them."""
WORLD: Final = "world"
"""The name of the group of all ranks."""


class ProcessGroup:
    """Ranks that communicate with each other; ``rank`` is this one's place among ``ranks``.

    ``new_group`` makes one. Every collective of a group is called by all of its ranks, in the same order.
    """

    def __init__(self, world: World, name: str, ranks: tuple[int, ...]) -> None:
        self.world, self.ranks = world, ranks
        self.label, self.name = name, name + world.token
        self.rank, self.size = ranks.index(world.rank), len(ranks)
        self._chosen: dict[str, str] = {}
        self._connected: dict[str, Communicator[Any]] = {}
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._worker: threading.Thread | None = None
        self._last: Work | None = None
        self._lock = threading.RLock()
        self._ended = ""
        world.groups[name] = _groups[self.name] = self

    def __repr__(self) -> str:
        return f"ProcessGroup({self.label!r}, ranks={[*self.ranks]}, rank={self.rank})"

    def run(self, operation: str, tensors: Sequence[Tensor], call: Callable[[Communicator[Any]], T]) -> T:
        """Do ``call`` with what connects the group on the tensors' device, after all that was queued."""
        last = self._last
        if last is not None and not last.is_completed() and threading.current_thread() is not self._worker:
            return self.submit(operation, tensors, call).wait()  # type: ignore[no-any-return]
        return self._call(operation, tensors, call)

    def submit(
        self, operation: str, tensors: Sequence[Tensor], call: Callable[[Communicator[Any]], T],
        finish: Callable[[Any], Any] | None = None,
    ) -> Work:  # fmt: skip
        """Queue ``call`` and return its handle; ``finish`` gets the result in the thread that waits."""
        return self.queue(lambda: self._call(operation, tensors, call), finish)

    def queue(self, call: Callable[[], Any], finish: Callable[[Any], Any] | None = None) -> Work:
        """Queue any call that communicates in this group; returns its handle."""
        with self._lock:
            if self._worker is None:
                name = f"tensorbus-group-{self.label}-{self.world.rank}"
                self._worker = threading.Thread(target=self._work, name=name, daemon=True)
                self._worker.start()
            work = self._last = Work(finish)
            self._queue.put(lambda: work._run(call))
        return work

    def communicator(self, device_type: str) -> Communicator[Any]:
        """Return what connects the ranks on tensors of ``device_type``, connected at the first use.

        All ranks call it at the same point; a group whose ranks lie on several device types agrees on one
        that takes all of them. Raises ``DistributedError`` where none does, saying why not each.
        """
        with self._lock:
            name = self._chosen.get(device_type)
            if name is None:
                name = self._chosen[device_type] = self._choose(device_type)
            return self._connected[name]

    def takes(self, device_type: str) -> bool:
        """Return whether something connects the ranks on tensors of ``device_type``; asks no other rank."""
        meeting = Rendezvous(
            self.label, self.ranks, self.rank, self.world.store, self.world.timeout, self.world.threads
        )
        return any(each.verdict(device_type, meeting) is True for each in plugins.communicators().values())

    def close(self, reason: str = "") -> None:
        """Give back the connections; with a ``reason`` what waits in them ends with an error saying it."""
        self._ended = reason or "the group was closed"
        for communicator in list(self._connected.values()):
            if reason:
                communicator.abort(reason)
            else:
                communicator.close()
        if self._worker is not None:
            self._queue.put(None)
        self.world.groups.pop(self.label, None)
        _groups.pop(self.name)

    def _call(self, operation: str, tensors: Sequence[Tensor], call: Callable[[Communicator[Any]], T]) -> T:
        if self._ended:
            raise DistributedError(f"{operation}: {self!r} has ended: {self._ended}.")
        first = tensors[0] if tensors else None
        record = self.world.records.start(
            self.label, operation, tuple(x.shape for x in tensors), "" if first is None else str(first.dtype),
            "" if first is None else str(first.device),
        )  # fmt: skip
        try:
            device_type = plugins.host_type() or "cpu" if first is None else first.device.type
            communicator = self.communicator(device_type)
            record.communicator = self._chosen[device_type]
            with no_grad():
                return call(communicator)
        except BaseException as error:
            record.failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            record.ended = time.monotonic()

    def _work(self) -> None:
        with in_world(self.world):
            while (task := self._queue.get()) is not None:
                task()

    def _choose(self, device_type: str) -> str:
        """Agree with the other ranks on a communicator, connect to it, and return its name."""
        world = self.world
        name = f"{self.label}:{len(self._chosen)}"
        meeting = Rendezvous(name, self.ranks, self.rank, world.store, world.timeout, world.threads)
        keys = [f"{meeting.name}/device/{rank}" for rank in range(self.size)]
        world.store.set(keys[self.rank], device_type.encode())
        end = time.monotonic() + world.timeout
        types = sorted({self._first_word(rank, key, end) for rank, key in zip(self.ranks, keys, strict=True)})
        name, factory = _best(types, meeting, world.prefer)
        if name not in self._connected:
            self._connected[name] = factory.connect(meeting)
        return name

    def _first_word(self, rank: int, key: str, end: float) -> str:
        """Wait for the device type of another rank; the end of the group ends the wait."""
        while True:
            left = end - time.monotonic()
            try:
                return self.world.store.get(key, max(min(left, _GLANCE), 0.001)).decode()
            except DistributedTimeoutError as error:
                if self._ended:
                    raise DistributedError(f"{self!r} has ended: {self._ended}.") from None
                if left <= 0:
                    raise DistributedTimeoutError(
                        f"rank {rank} did not come to the first collective of {self!r} within"
                        f" {self.world.timeout:g} seconds. It works still, waits elsewhere, or is gone;"
                        f" tensorbus.distributed.records() on each rank shows what it did last."
                    ) from error


def _best(types: Sequence[str], meeting: Rendezvous, prefer: str | None) -> tuple[str, CommunicatorFactory]:
    """Return what takes tensors of all ``types``: the preferred one first, then by their ``priority``."""
    offered = plugins.communicators()
    if prefer is not None and prefer not in offered:
        raise ArgumentError(
            f"distributed: no communicator is called {prefer!r}. Installed: {', '.join(offered) or 'none'}."
        )
    reasons = []
    order = sorted(offered, key=lambda name: (name != prefer, -getattr(offered[name], "priority", 0)))
    for name in order:
        verdicts = {kind: offered[name].verdict(kind, meeting) for kind in types}
        refused = [f"{kind}: {verdict}" for kind, verdict in verdicts.items() if verdict is not True]
        if not refused:
            return name, offered[name]
        reasons.append(f"{name} does not ({'; '.join(refused)})")
    where = "threads of one process" if meeting.threads else "processes"
    raise DistributedError(
        f"distributed: nothing connects {len(meeting.ranks)} ranks that are {where} on {', '.join(types)}:"
        f" {'; '.join(reasons) or 'no communicator is installed'}. Install a communicator for it, or move the"
        f" tensors to a device that has one."
    )


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


def new_group(ranks: Sequence[int] | None = None) -> ProcessGroup | None:
    """Make a group of some ranks of the program; None: of all. Returns None on a rank that is not in it.

    All ranks call it, in the same order. Ranks keep the order in which they are given.

    Raises ``ArgumentError`` for a rank that does not exist or stands twice.
    """
    world = current()
    chosen = tuple(range(world.size)) if ranks is None else tuple(ranks)
    if not chosen or len(set(chosen)) != len(chosen) or not all(r in range(world.size) for r in chosen):
        raise ArgumentError(
            f"new_group: ranks must be different numbers from 0 to {world.size - 1}, got {[*chosen]}."
        )
    count = world.group_counts[chosen] = world.group_counts.get(chosen, 0) + 1
    if world.rank not in chosen:
        return None
    return ProcessGroup(world, f"{','.join(map(str, chosen))}#{count}", chosen)
