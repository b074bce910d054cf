"""Agreements of a group's ranks on what connects them on tensors of a device type, through the store.

They do at the first call on tensors of a type. A rank that has made that call on tensors of another type,
which is connected, does not come: it answers what that call was on and by what, and the others follow.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from ...backend_interface.communication import Rendezvous
from ...devices.device import Device
from ...dispatch.host_fallback import fallback_mode
from ...errors import DistributedError, DistributedTimeoutError
from ...plugins import host_type
from .communicator_contract import connected, verdict_of
from .connection import Connection
from .host_staging import HostStaging
from .questions import ask
from .records import Record
from .selection import best, by_preference
from .unreturned_calls import look_after
from .watch import watch

if TYPE_CHECKING:
    from .world import World

_GLANCE: Final = 0.25
"""Seconds between two looks at whether a group has ended, while its ranks agree on what connects them."""
_CHANGES: Final = 256
"""How many changes of the calls' device type are remembered."""


class _Word(NamedTuple):
    """A rank's word: its tensors' type, what they may be copied to, its call, and the collectives before it.

    ``call`` is the number of the collective that waits for the agreement, 0 for none. ``begun`` have been
    begun before; ``before`` says, in order, from which on they were on tensors of a type, by what, and what
    they were copied to.
    """

    device_type: str
    staged: str
    call: int
    begun: int
    before: Sequence[tuple[int, str, str, str]]

    def at(self, call: int) -> tuple[str, str, str]:
        """Return the type of a collective, what it has been done by, "" for not yet, and its copies' type."""
        if call > self.begun:
            return self.device_type, "", self.staged
        for first, kind, by, staged in reversed(self.before):
            if first <= call:
                return kind, by, staged
        raise DistributedError(
            f"collective {call} is too long ago: the device has changed {len(self.before)} times since."
        )


class Agreements:
    """Those of one group, called ``label``, on this rank, one after the other on all ranks.

    ``chosen`` has the connection by device type, ``staged`` what copies tensors of a type to the host where
    nothing takes them as they are, ``connections`` those by the name of their communicator; ``connecting``
    stands for one that is being agreed on.
    """

    def __init__(self, world: World, label: str, ranks: tuple[int, ...], timeout: float) -> None:
        self.chosen: dict[str, Connection] = {}
        self.staged: dict[str, HostStaging] = {}
        self.connections: dict[str, Connection] = {}
        self.connecting: list[Connection] = []
        self.ended = ""
        """Why the group has ended."""
        self._world, self._label, self._ranks, self._timeout = world, label, ranks, timeout
        self._number = 0
        self._has_answered = False
        """Whether this rank has given its word in the next agreement, without waiting for the others'."""
        self._begun = 0
        self._changes: deque[tuple[int, str]] = deque(maxlen=_CHANGES)
        """From which collective on they were on tensors of a type, in order."""
        self._lock, self._counting = threading.RLock(), threading.Lock()

    def begin(self, record: Record, device_type: str) -> None:
        """Number the collectives of a record, which begin now: every rank of the group has the same ones."""
        with self._counting:
            record.number = self._begun + 1
            if not self._changes or self._changes[-1][1] != device_type:
                self._changes.append((record.number, device_type))
            self._begun += record.count

    def answered(self) -> dict[str, int]:
        """Return the agreement that has this rank's word and is not known to have come to its end, with 1."""
        return {self._name(): 1} if self._has_answered else {}

    def meeting(self, name: str = "") -> Rendezvous:
        """Return who meets under a name; "": that of the group."""
        world = self._world
        place = self._ranks.index(world.rank)
        return Rendezvous(name or self._label, self._ranks, place, world.store, self._timeout, world.threads)

    def connection(self, device: Device, record: Record, terms: str, is_message: bool) -> Connection:
        """Return what connects the ranks on tensors of ``device``: see ``ProcessGroup.connection``.

        Ranks come to a message behind other collectives than those that it is for: what these were on says
        nothing of it.
        """
        chosen = self.chosen.get(device.type)
        if chosen is not None:
            return chosen
        with self._lock:  # which lasts until the other ranks come: nobody who queues waits for it
            chosen = self.chosen.get(device.type) or self._connected(device)
            while chosen is None:
                self._agree(device, record, terms, is_message)
                chosen = self.chosen.get(device.type)
            return chosen

    def answer(self, name: str, call: int) -> bool:
        """Give this rank's word in an agreement about a collective that it has begun, if it has not yet.

        Returns False where it cannot, or need not as it comes itself. Called from a thread beside.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            number = int(name.rpartition(":")[2])
            store = self._world.store
            if self._has_answered and number > self._number and store.check(self._keys()):
                with suppress(DistributedError):  # told on the ranks that wait for it
                    self._settle([_word(store.get(key, self._timeout)) for key in self._keys()], None)
            if number < self._number or (number == self._number and self._has_answered):
                return True
            if number > self._number or self._begun < call:
                return False
            self._say("", "", 0)
            self._has_answered = True
            return True
        finally:
            self._lock.release()

    def _name(self) -> str:
        return f"{self._label}:{self._number}"

    def _present(self) -> tuple[int, ...]:
        """Return the ranks that give a word: one that is alone speaks for all."""
        return (self._world.rank,) if self._world.alone else self._ranks

    def _keys(self) -> list[str]:
        """Return where each rank's word in the next agreement is."""
        places = [self._place()] if self._world.alone else range(len(self._ranks))
        return [self._key(place) for place in places]

    def _place(self) -> int:
        return self._ranks.index(self._world.rank)

    def _key(self, place: int) -> str:
        return f"{self._name()}/device/{place}"

    def _say(self, device_type: str, staged: str, call: int) -> None:
        """Give this rank's word in the next agreement."""
        host = host_type() or ""
        with self._counting:
            begun = self._begun
            before = [
                (first, kind, self.chosen[kind].name, host if kind in self.staged else "")
                for first, kind in self._changes
            ]
        key = self._key(self._place())
        self._world.store.set(key, json.dumps(_Word(device_type, staged, call, begun, before)).encode())

    def _agree(self, device: Device, record: Record, terms: str, is_message: bool) -> None:
        """Take part in the next agreement; if this rank has given its word there already, see its end."""
        world, name, answered = self._world, self._name(), self._has_answered
        first = Connection("", None, self.meeting(name))
        first.start(record, terms)
        self.connecting.append(first)
        watch(world)
        try:
            if not answered:
                call = 0 if is_message else self._begun + 1
                self._say(device.type, "" if fallback_mode() == "error" else host_type() or "", call)
                if call and self._number:  # before the first one no rank has made a call
                    ask(world, self._label, name, call)
            end = time.monotonic() + self._timeout
            words = [
                self._first_word(rank, key, end, first)
                for rank, key in zip(self._present(), self._keys(), strict=True)
            ]
        finally:
            self.connecting.remove(first)
        with suppress(DistributedError) if answered else nullcontext():
            self._settle(words, device)

    def _settle(self, words: Sequence[_Word], device: Device | None) -> None:
        """Do what follows from all words: the same on every rank. ``device``: of this rank's tensors."""
        name = self._name()
        call = min((word.call for word in words if word.call), default=max(word.begun for word in words) + 1)
        self._number += 1
        self._has_answered = False
        types, bound = dict[str, str](), dict[str, int]()
        for rank, word in zip(self._present(), words, strict=True):
            kind, by, staged = word.at(call)
            types[kind] = staged
            if by:
                bound.setdefault(by, rank)
        if len(bound) > 1:
            text = " and ".join(f"{by} on rank {rank}" for by, rank in bound.items())
            raise DistributedError(
                f"collective {call} of group {self._label!r} goes by {text}. All ranks of a group make a call"
                f" by the same communicator: make a group by new_group for what lies on other devices."
            )
        meeting = self.meeting(name)
        chosen, factory = best(types, meeting, self._world.prefer, next(iter(bound), ""))
        if chosen not in self.connections:
            communicator = connected(chosen, factory, meeting)
            prepare = getattr(communicator, "prepare", None)
            if prepare is not None and device is not None:
                prepare(device)
            world = self._world if self._world.threads else None
            self.connections[chosen] = Connection(chosen, communicator, meeting, world)
            look_after(self._world, self.connections[chosen])
        connection = self.connections[chosen]
        connection.device = connection.device or device
        for kind, staged in types.items():
            if verdict_of(chosen, factory, kind, meeting) is not True:
                host = Device(host_type() or staged, 0)
                self.staged[kind] = HostStaging(connection.communicator, chosen, host)
            self.chosen[kind] = connection

    def _connected(self, device: Device) -> Connection | None:
        """Return a connection that is there, and would be chosen for this device type as well; None for none.

        Other ranks may use it already, on tensors of their devices: they would come to no agreement. What
        nothing takes as it is goes through the host, over what connects that.
        """
        if not self.connections:
            return None
        prefer, meeting = self._world.prefer, self.meeting()
        staged = None
        chosen = next(by_preference(prefer, device.type, meeting), "")
        if not chosen and (staged := host_type()) is not None:
            chosen = next(by_preference(prefer, staged, meeting), "")
        connection = self.connections.get(chosen)
        if connection is not None:
            self.chosen[device.type] = connection
            if staged is not None:
                self.staged[device.type] = HostStaging(connection.communicator, chosen, Device(staged, 0))
        return connection

    def _first_word(self, rank: int, key: str, end: float, first: Connection) -> _Word:
        """Wait for the word of another rank; the end of the group, or of ``first``, ends the wait."""
        while True:
            left = end - time.monotonic()
            try:
                return _word(self._world.store.get(key, max(min(left, _GLANCE), 0.001)))
            except DistributedTimeoutError:
                if self.ended:
                    raise DistributedError(f"group {self._label!r} has ended: {self.ended}.") from None
                first.check()
                if left <= 0:
                    raise DistributedTimeoutError(
                        f"rank {rank} did not come to the first collective of group {self._label!r} within"
                        f" {self._timeout:g} seconds. It works still, waits elsewhere, or is gone;"
                        f" tensorbus.distributed.records() on each rank shows what it did last."
                    ) from None


def _word(data: bytes) -> _Word:
    return _Word(*json.loads(data))
