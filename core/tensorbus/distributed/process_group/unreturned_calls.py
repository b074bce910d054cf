"""Calls of communicators and stores that do not return, though they have a limit: told of, then ended.

Nothing in Python ends a call in another thread. So the rank says on its error stream which communicator or
store it is and in which call, the group fails for all ranks, and if the call goes on the process ends, with
an exit code; ranks that are threads are left behind by what started them. A thread of its own looks: that of
``watch`` asks the store, and may be what waits there for ever.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ...errors import DistributedTimeoutError
from ...system import fork_safe_locks
from ...system.rank_of_thread import rank_of_thread
from ...system.weak_tables import WeakSet
from .records import Record

if TYPE_CHECKING:
    from .connection import Connection
    from .world import World

_PERIOD: Final = 0.25
"""Seconds between two looks."""
_NOTICE: Final = 1.0
"""Seconds beyond its limit after which a rank says that a communicator's call goes on: it may be at work."""
_MARGIN: Final = 10.0
"""Seconds beyond twice its limit after which such a call fails its group; and beyond the limit of any other
call, after which the rank says so."""
_AFTER_FAILURE: Final = 30.0
"""Seconds that a communicator gets to return from its call once its group has failed."""
_AFTER_WORDS: Final = 180.0
"""Seconds that any other call gets: a store may try a server that is gone several times."""
_LAST_WORDS: Final = 5.0
"""Seconds that a process takes to say why it ends."""


@dataclass(slots=True)
class _Call:
    """A call under way: what it is, its limit in seconds, and how often it was seen to be late."""

    what: str
    limit: float
    started: float = field(default_factory=time.monotonic)
    thread: int = field(default_factory=threading.get_ident)
    rank: Any = field(default_factory=rank_of_thread)
    """The rank where it is a thread, else None."""
    looks: int = 0


@dataclass(slots=True)
class _Lateness:
    """The treatment so far of a call that is late; ``looks`` counts those since its group has failed."""

    record: Record
    is_told: bool = False
    has_failed: bool = False
    looks: int = 0


_calls: Final[dict[int, _Call]] = {}
_late: Final[dict[int, _Lateness]] = {}
"""Collectives and messages that are late, by identity."""
_worlds: Final[WeakSet[World]] = WeakSet()
_connections: Final[WeakSet[Connection]] = WeakSet()
"""Of groups, of closed ones too: a call of theirs may go on."""
_lock: Final = fork_safe_locks.simple()
_thread: list[threading.Thread] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_calls.clear)  # the threads that make them stayed behind


def look_after(world: World, connection: Connection | None = None) -> None:
    """Look at the calls of a rank's communicators from now on: of this one."""
    with _lock:
        _worlds.add(world)
        if connection is not None:
            _connections.add(connection)
        _start()


@contextmanager
def limited(what: str, limit: float) -> Iterator[None]:
    """Look whether the block, a call into a plugin, ends about when its limit of seconds says."""
    call = _Call(what, limit)
    with _lock:
        _calls[id(call)] = call
        _start()
    try:
        yield
    finally:
        del _calls[id(call)]


def _start() -> None:
    if not _thread or not _thread[0].is_alive():  # a fork leaves the thread behind
        _thread[:] = [threading.Thread(target=_run, name="tensorbus-limits", daemon=True)]
        _thread[0].start()


def _run() -> None:
    while True:
        time.sleep(_PERIOD)
        with _lock:
            busy = [connection for connection in _connections if connection.running]
            if not (busy or _calls or any(world.is_watched for world in _worlds)):
                _thread.clear()
                return
        now = time.monotonic()
        for call in list(_calls.values()):
            _look(call, now)
        known = {**_late}
        _late.clear()
        for connection in busy:
            for record in list(connection.running.values()):
                _look_at_record(connection, record, known, now)
        del busy, known


def _look(call: _Call, now: float) -> None:
    """Tell of a call that is late, and end it when it stays so. Time that the process stood still is none."""
    if now - call.started <= call.limit + _MARGIN:
        return
    call.looks += 1
    text = (
        f"{call.what} has not returned for {now - call.started:.0f} seconds, though its limit is"
        f" {call.limit:g}"
    )
    if call.looks == 1:
        _say(f"{text}. If it does not within {_AFTER_WORDS:g} seconds more, this rank ends.")
    elif call.looks * _PERIOD > _AFTER_WORDS:
        _end(call.rank, f"{text}: this rank ends.", call.thread)


def _look_at_record(connection: Connection, record: Record, known: dict[int, _Lateness], now: float) -> None:
    """Fail a group whose communicator does not return, and end the rank where that does not help."""
    meeting, late = connection.meeting, now - record.started
    rank = meeting.ranks[meeting.rank]
    limit = meeting.timeout
    if connection.failure is None and late <= limit + _NOTICE:
        return
    seen = _late[id(record)] = known.get(id(record)) or _Lateness(record)
    text = (
        f"rank {rank}: communicator {connection.name!r} has not returned for {late:.0f}"
        f" seconds from {record}, though a call has {limit:g}"
    )
    if connection.failure is not None:
        seen.looks += 1
        if seen.looks * _PERIOD > _AFTER_FAILURE:
            why = "" if seen.has_failed else f" Its group has failed: {connection.failure}"
            text = f"{text}.{why} As nothing ends the call, this rank ends."
            _end(connection.thread_rank, text, record.thread)
    elif not seen.is_told:
        seen.is_told = True
        _say(f"{text}. At {2 * limit + _MARGIN:g} seconds its group fails.")
    elif late > 2 * limit + _MARGIN and not seen.has_failed:
        seen.has_failed = True
        error = DistributedTimeoutError(
            f"{text}. `tensorbus conformance --communicator {connection.name}` examines it."
        )
        # which tells others through the store, and so may not return itself
        threading.Thread(target=connection.fail, args=(error,), daemon=True).start()


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # closed, or none
        print(f"tensorbus: {text}", file=sys.stderr, flush=True)


def _end(rank: World | None, text: str, thread: int) -> None:
    """End the rank: its process, or what waits for the thread that it is."""
    frame = sys._current_frames().get(thread)
    stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
    if rank is not None:
        if rank.stuck is None:
            rank.stuck = DistributedTimeoutError(text)
            rank.stuck.add_note(f"The call:\n{stack}")
        return

    def last_words() -> None:
        _say(f"{text}\nThe call:\n{stack}")
        with suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        for world in list(_worlds):
            if world.is_watched and not world.threads:
                world.roll_call.leave(text.removesuffix("."))

    speaker = threading.Thread(target=last_words, daemon=True)  # whatever it writes to may not return either
    speaker.start()
    speaker.join(_LAST_WORDS)
    os._exit(1)
