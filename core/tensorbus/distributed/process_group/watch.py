"""A thread that looks at calls under way: what takes too long, has failed on a device, or cannot end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ...errors import DistributedError
from ...system.weak_tables import WeakSet
from .roll_call import stalled
from .unreturned_calls import look_after

if TYPE_CHECKING:
    from .connection import Connection
    from .world import World

PERIOD: Final = 0.25
"""Seconds between two looks."""
_worlds: Final[WeakSet[World]] = WeakSet()
_lock: Final = threading.Lock()
_thread: list[threading.Thread] = []


def watch(world: World) -> None:
    """Look at the calls of a rank from now on, for as long as it takes part."""
    with _lock:
        world.is_watched = True
        _worlds.add(world)
        if not _thread or not _thread[0].is_alive():  # a fork leaves the thread behind
            _thread[:] = [threading.Thread(target=_run, name="tensorbus-watch", daemon=True)]
            _thread[0].start()
    look_after(world)


def _run() -> None:
    while True:
        time.sleep(PERIOD)
        with _lock:
            worlds = [world for world in _worlds if world.is_watched]
            if not worlds:
                _thread.clear()
                return
        for world in worlds:
            _look(world)
        del worlds


def _look(world: World) -> None:
    now = time.monotonic()
    for group in list(world.groups.values()):
        for connection in group.connections():
            with _ending(connection):
                connection.overdue(now)
    if world.alone:
        return  # nobody is waited for
    waiting = stalled(world, now)
    with _ending(*(connection for connection, _ in waiting)):
        world.roll_call.look(waiting, now)


@contextmanager
def _ending(*connections: Connection) -> Iterator[None]:
    """End the connections where what looks after them fails: nobody would end their calls later."""
    try:
        yield
    except Exception as error:
        for connection in connections:
            text = (
                f"group {connection.meeting.name!r} cannot be looked after: {type(error).__name__}: {error}"
            )
            connection.fail(DistributedError(text))
