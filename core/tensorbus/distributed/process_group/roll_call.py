"""Messages in the store between ranks that wait for each other, and what follows from them.

A rank whose call has waited for a second says so, and looks at what the others say: ranks that ask for
different things, that have left or died, or that wait for each other, end the call with an error that names
both. Nothing is said while calls come to their end, so a program that runs well pays nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from ...backend_interface.communication import Store
from ...errors import DistributedError
from .questions import Questions

if TYPE_CHECKING:
    from .connection import Connection
    from .records import Record
    from .world import World

STALLED: Final = 1.0
"""Seconds that a call waits before its rank says so."""
_BEAT: Final = 2.0
"""Seconds between two signs of life of a process."""
SILENT: Final = 60.0
"""Seconds without one after which a rank that others wait for counts as dead: a call of C may hold Python's
lock for long."""
LOST: Final = 3 * _BEAT
"""The same for one whose connection to the store has ended; it might have another one by then."""


@dataclass(slots=True)
class Waiting:
    """A call that waits: where, which, for whom; all but ``meeting`` and ``text`` are those of its record."""

    meeting: str
    sequence: int
    asked: str
    text: str
    needs: list[int]
    fingerprint: int
    group: str
    communicator: str
    number: int
    count: int


@dataclass(slots=True)
class State:
    """A rank's message: the calls that wait, how many it has begun of each group, and why it left.

    Of one that has left, ``begun`` are those that came to their end: what it had to send for them is sent.
    ``blocked`` is the place in ``waiting`` of the call in which the program itself waits, -1 for none: then
    it cannot come to another one.
    """

    waiting: list[Waiting] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)
    blocked: int = -1
    left: str = ""

    def text(self) -> bytes:
        """Return what goes into the store."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, data: bytes) -> State:
        """Return what ``text`` put there."""
        fields = json.loads(data)
        return cls(**{**fields, "waiting": [Waiting(**w) for w in fields["waiting"]]})


class RollCall:
    """One rank's part in it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last_sent: bytes | None = None
        self._left: str | None = None
        self._suspected: tuple[bytes, ...] = ()
        self._heard: dict[int, tuple[bytes, float]] = {}
        """By rank: its last sign of life, and when that was seen first."""
        self._beaten, self._beats = 0.0, 0
        self._questions = Questions(world)
        self._finished: dict[str, int] = {}
        """How many collectives came to their end on connections that are closed, by what they met as."""

    def closed(self, connection: Connection) -> None:
        """Note that a connection has been given back."""
        self._finished[connection.meeting.name] = connection.finished()

    def leave(self, reason: str) -> None:
        """Tell that this rank takes no further part; once, which may be in vain where the store is gone."""
        if self._left == reason:
            return
        self._left = reason
        finished = dict(self._finished)
        for group in list(self._world.groups.values()):
            finished |= {each.meeting.name: each.finished() for each in group.connections()}
        with suppress(DistributedError):
            self._say(State(left=reason, begun=finished).text())

    def look(self, waiting: Sequence[tuple[Connection, Record]], now: float) -> None:
        """Say what waits here, and end what cannot come to its end. Called from the watch's thread."""
        world = self._world
        if self._left is not None:
            return
        try:
            if self._beat(now) or waiting or world.threads:
                self._questions.answer()
            if not waiting:
                self._say(b"")
                return
            state = self._state(waiting)
            self._say(state.text())
            others = self._others(state)
            for connection, record in waiting:
                error = self._problem(connection, record, others, now)
                if error:
                    connection.fail(DistributedError(error))
            self._look_for_deadlock(state, others, waiting)
        except DistributedError:
            for connection, record in waiting:
                if world.is_served and 0 in record.needs and world.rank != 0:
                    connection.fail(DistributedError(
                        f"{record}: rank 0, which serves the store of the ranks, is gone."
                    ))  # fmt: skip

    def _state(self, waiting: Sequence[tuple[Connection, Record]]) -> State:
        state = State()
        for group in list(self._world.groups.values()):
            for connection in group.connections():
                state.begun[connection.meeting.name] = connection.sequence
            state.begun |= group.agreements.answered()
        for connection, record in waiting:
            if record.thread == self._world.thread and record.state == "running":
                state.blocked = len(state.waiting)
            state.waiting.append(
                Waiting(
                    connection.meeting.name, record.sequence, record.asked, str(record), [*record.needs],
                    record.fingerprint, record.group, record.communicator, record.number, record.count,
                )
            )  # fmt: skip
        return state

    def _others(self, state: State) -> dict[int, tuple[State, bytes]]:
        """Return what the ranks tell that this one waits for, and those that they wait for."""
        others: dict[int, tuple[State, bytes]] = {}
        asked = {self._world.rank}
        todo = {rank for waiting in state.waiting for rank in waiting.needs} - asked
        while todo:
            rank = todo.pop()
            asked.add(rank)
            data = _peek(self._world.store, f"state/{rank}")
            if data:
                others[rank] = State.of(data), data
                todo |= {r for waiting in others[rank][0].waiting for r in waiting.needs} - asked
        return others

    def _problem(
        self, connection: Connection, record: Record, others: dict[int, tuple[State, bytes]], now: float
    ) -> str:
        """Return why a call cannot come to its end, "" where it may."""
        meeting, here = connection.meeting, self._world.rank
        failed = _peek(meeting.store, f"{meeting.name}/failed")
        if failed:
            return failed.decode()
        problems = (
            self._problem_of(connection, record, rank, others[rank][0] if rank in others else State(), now)
            for rank in record.needs
            if rank != here
        )
        if record.needs_one:
            every = [*problems]
            return every[0] if all(every) else ""
        return next(filter(None, problems), "")

    def _problem_of(self, connection: Connection, record: Record, rank: int, state: State, now: float) -> str:
        """Return why a rank does not come to a call of this one, "" where it may."""
        meeting, here = connection.meeting, self._world.rank
        if state.left:
            if record.asked and state.begun.get(meeting.name, 0) >= record.sequence:
                return ""
            return f"{record}: rank {rank} will not come: {state.left}."
        for waiting in state.waiting:
            if waiting.meeting != meeting.name and _is_same(waiting, record):
                return (
                    f"{record}: it goes by {record.communicator} on rank {here}, and by"
                    f" {waiting.communicator} on rank {rank}, whose tensors lie on another device. Where"
                    f" each device of a group has been connected by another communicator, no call may"
                    f" have tensors on several: make a group for such calls by new_group."
                )
            if waiting.meeting != meeting.name or not waiting.asked or not record.asked:
                continue
            mine = connection.asked(waiting.sequence)
            if mine and mine != waiting.asked:
                return (
                    f"the ranks ask for different things: rank {here}: {mine}, call {waiting.sequence};"
                    f" rank {rank}: {waiting.text}."
                )
            if mine and not connection.is_as(waiting.sequence, waiting.fingerprint):
                return (
                    f"the ranks ask for different things: rank {rank} waits in {waiting.text}; before it"
                    f" rank {here} has asked for something else. tensorbus.distributed.records() on each"
                    f" rank shows what they did last."
                )
        silence = self._silence(rank, now)
        return silence and f"{record}: rank {rank} {silence}."

    def _look_for_deadlock(
        self, state: State, others: dict[int, tuple[State, bytes]],
        waiting: Sequence[tuple[Connection, Record]],
    ) -> None:  # fmt: skip
        """End what waits where all that it waits for wait as well; if nothing has changed since before."""
        here = self._world.rank
        states = {here: state, **{rank: other for rank, (other, _) in others.items()}}
        stuck: list[int] = []
        todo = [here]
        while todo:
            rank = todo.pop()
            stuck.append(rank)
            known = states.get(rank)
            missing = _missing(rank, known, states) if known is not None else []
            if not missing:  # it works, or all that its call waits for have come: that goes on
                self._suspected = ()
                return
            todo += [other for other in missing if other not in stuck + todo]
        if len(stuck) < 2:
            self._suspected = ()
            return
        now = tuple(state.text() if rank == here else others[rank][1] for rank in sorted(stuck))
        suspected, self._suspected = self._suspected, now
        if suspected != now:
            return
        calls = [(rank, states[rank].waiting[states[rank].blocked].text) for rank in sorted(stuck)]
        text = "; ".join(f"rank {rank}: {call}" for rank, call in calls)
        connection, _ = waiting[state.blocked]
        connection.fail(DistributedError(
            f"the ranks wait for each other: {text}. All ranks of a group call its collectives in the same"
            f" order."
        ))  # fmt: skip

    def _silence(self, rank: int, now: float) -> str:
        """Return why a rank counts as dead, "" where it does not."""
        if self._world.threads:
            return ""
        sign = _peek(self._world.store, f"beat/{rank}")
        known = self._heard.get(rank)
        if not sign:
            return ""  # it has not come to init yet
        if known is None or known[0] != sign:
            self._heard[rank] = sign, now
            return ""
        silent, period = now - known[1], self._period()
        if silent > max(LOST, 3 * period) and _peek(self._world.store, f"lost/{rank}"):
            return "has left the store without a word: it was ended, or its machine cannot be reached"
        if silent > max(SILENT, 4 * period):
            text = f"has shown no sign of life for {SILENT:g} seconds"
            return f"{text}: it was ended, or its machine cannot be reached"
        return ""

    def _period(self) -> float:
        return max(_BEAT, self._world.size / 200)

    def _beat(self, now: float) -> bool:
        """Give a sign of life if it is time to, and return whether it was."""
        if self._world.threads or now - self._beaten < self._period():
            return False
        if not self._beats and (set_on_loss := getattr(self._world.store, "set_on_loss", None)) is not None:
            set_on_loss(f"lost/{self._world.rank}", b"1")
        self._beaten, self._beats = now, self._beats + 1
        self._world.store.set(f"beat/{self._world.rank}", str(self._beats).encode())
        return True

    def _say(self, data: bytes) -> None:
        if data != self._last_sent:
            self._world.store.set(f"state/{self._world.rank}", data)
            self._last_sent = data


def _missing(rank: int, state: State, states: dict[int, State]) -> list[int]:
    """Return the ranks that have not come to the collective in which a rank's program waits."""
    call = state.waiting[state.blocked] if state.blocked >= 0 else None
    if call is None or not call.asked:
        return []
    return [
        other
        for other in call.needs
        if other != rank
        and (states[other].begun if other in states else {}).get(call.meeting, 0) < call.sequence
    ]


def _is_same(waiting: Waiting, record: Record) -> bool:
    """Return whether another rank's call is, of the group's collectives, one of those of ``record``."""
    if waiting.group != record.group or not waiting.number or not record.number:
        return False
    ends = waiting.number + waiting.count, record.number + record.count
    return max(waiting.number, record.number) < min(ends)


def _peek(store: Store, key: str) -> bytes:
    """Return what is under a key now, b"" for nothing."""
    if not store.check([key]):
        return b""
    return store.get(key, 5.0)


def stalled(world: World, now: float) -> list[tuple[Connection, Record]]:
    """Return the calls that have waited long enough to tell of: the oldest of each connection."""
    calls = []
    for group in list(world.groups.values()):
        for connection in group.connections():
            record = connection.oldest()
            if record is not None and connection.failure is None and now - record.started > STALLED:
                calls.append((connection, record))
    return calls
