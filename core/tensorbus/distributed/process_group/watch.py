"""A thread that looks at calls under way: what takes too long, has failed on a device, or cannot end."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from ...system.weak_tables import WeakSet
from .roll_call import stalled

if TYPE_CHECKING:
    from .world import World

PERIOD: Final = 0.25
"""Seconds between two looks."""
_worlds: Final[WeakSet[World]] = WeakSet()
_lock: Final = threading.Lock()
_thread: list[threading.Thread] = []


def watch(world: World) -> None:
    """Look at the calls of a rank from now on, for as long as it takes part."""
    with _lock:
        _worlds.add(world)
        if not _thread or not _thread[0].is_alive():  # a fork leaves the thread behind
            _thread[:] = [threading.Thread(target=_run, name="tensorbus-watch", daemon=True)]
            _thread[0].start()


def _run() -> None:
    while True:
        time.sleep(PERIOD)
        with _lock:
            worlds = [world for world in _worlds if world.groups]
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
            connection.overdue(now)
    world.roll_call.look(stalled(world, now), now)
