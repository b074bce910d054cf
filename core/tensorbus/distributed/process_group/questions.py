"""Agreements that ranks wait in, told through the store to ranks that have made the call already.

A rank whose tensors lie on a device type that is new to its group asks the others what connects them on it.
Another rank may have made that call on tensors of a type that is connected, and comes to no agreement. It
looks now and then, and sooner where its call waits: calls that come to their end pay nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .world import World

_COUNT: Final = "agreements/asked"
"""The key under which questions are counted, from 1 on; each has a key behind it."""


def ask(world: World, group: str, name: str, call: int) -> None:
    """Ask those who have begun a group's collective number ``call`` for their word in the agreement ``name``.

    Of several ranks that ask alike one does.
    """
    mine = f"{call} {world.rank}"
    first = world.store.compare_set(f"{name}/asked", b"", mine.encode()).decode()
    if first == mine or first.split()[0] != str(call):
        number = world.store.add(_COUNT, 1)
        world.store.set(f"{_COUNT}/{number}", json.dumps([group, name, call]).encode())


class Questions:
    """Those that a rank has been asked, until it has answered, or has come to the agreement itself."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = 0
        self._open: list[tuple[str, str, int]] = []

    def answer(self) -> None:
        """Look for new ones, and answer those that can be answered. Raises what the store does."""
        store = self._world.store
        count = store.add(_COUNT, 0)
        while self._seen < count:
            group, name, call = json.loads(store.get(f"{_COUNT}/{self._seen + 1}", self._world.timeout))
            self._seen += 1
            self._open.append((group, name, call))
        groups = self._world.groups
        self._open = [
            question for question in self._open
            if question[0] not in groups or not groups[question[0]].agreements.answer(*question[1:])
        ]  # fmt: skip
