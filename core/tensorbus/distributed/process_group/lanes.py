"""Threads that make a group's queued calls: one for collectives, one for messages to, or from, each rank.

A message waits for one rank only. Behind others it could keep the very message waiting that it waits for:
both of two ranks may ask for what the other sends before they send.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .records import MESSAGES
from .work import Place, Work
from .world import World, in_world

Peer = tuple[str, int]
"""What a lane of messages is for: the operation, and the place of the other rank."""


def peers_of(operation: str, needs: Sequence[int] | None) -> Sequence[Peer]:
    """Return which lanes a call belongs to; none for that of the collectives."""
    return [(operation, place) for place in needs or ()] if operation in MESSAGES else []


class _Lane:
    """Calls in the order in which they were asked for, and the thread that makes them."""

    def __init__(self, name: str, world: World) -> None:
        self.last: Place | None = None
        """The progress of what was queued last."""
        self._world = world
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def put(self, task: Callable[[], None] | None, place: Place | None = None) -> None:
        """Queue a task; ``place`` is its progress. None ends the thread."""
        self.last = place or self.last
        self._tasks.put(task)

    def _run(self) -> None:
        with in_world(self._world):
            while (task := self._tasks.get()) is not None:
                task()
                del task  # which holds the operands


class Lanes:
    """The lanes of one group on one rank."""

    def __init__(self, name: str, world: World) -> None:
        self._name, self._world = name, world
        self._lanes: dict[Peer | None, _Lane] = {}
        self._places: deque[Place] = deque()
        """The progress of queued calls, oldest first."""
        self._unsorted = 0
        """How many messages wait for the group to be connected: only then it is known where they belong."""
        self._lock = threading.Lock()
        self._ended = False

    def is_run_by(self, thread: int) -> bool:
        """Return whether the thread of this number makes queued calls."""
        return any(lane.thread.ident == thread for lane in list(self._lanes.values()))

    def put(
        self, work: Work, call: Callable[[], Any], peers: Sequence[Peer], check: Callable[[], None],
        has_lanes: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        """Queue a call, whose handle is ``work``; ``check`` raises where nothing may be queued any more.

        ``peers`` are of the messages that it makes, none of a collective. ``has_lanes`` connects the group
        first, and says whether messages have lanes of their own.
        """
        with self._lock:
            check()
            while self._places and self._places[0].is_submitted():
                self._places.popleft()
            self._places.append(work.place)
            if peers and (has_lanes is not None or self._unsorted):
                self._unsorted += 1
                self._lane(None).put(partial(self._sort, work, call, peers, has_lanes))
            else:
                self._put(work, call, peers)

    def _put(self, work: Work, call: Callable[[], Any], peers: Sequence[Peer]) -> None:
        """Give a call to the first of its lanes; it follows what the others have, and they follow it."""
        first, *others = [self._lane(peer) for peer in dict.fromkeys(peers)] or [self._lane(None)]
        before = [lane.last for lane in others if lane.last is not None]

        def follow() -> None:
            for place in before:
                place.submitted.wait()
            work._run(call)

        first.put(follow, work.place)
        for lane in others:
            lane.put(partial(_wait_for, work.place), work.place)

    def _lane(self, peer: Peer | None) -> _Lane:
        lane = self._lanes.get(peer)
        if lane is None:
            name = self._name if peer is None else f"{self._name}-{peer[0]}-{peer[1]}"
            lane = self._lanes[peer] = _Lane(name, self._world)
        return lane

    def _sort(
        self, work: Work, call: Callable[[], Any], peers: Sequence[Peer],
        has_lanes: Callable[[], bool] | None,
    ) -> None:  # fmt: skip
        """Put a message into its lane, once that is known."""
        try:
            is_own = has_lanes is None or has_lanes()
        except BaseException as error:  # raised where the message is waited for
            problem = error
            is_own, call = False, lambda: _raise(problem)
        with self._lock:
            self._unsorted -= 1
            if is_own and not self._ended:
                self._put(work, call, peers)
                return
        work._run(call)

    def last(self, peer: Peer | None) -> Place | None:
        """Return the progress of what a call of this lane comes behind."""
        with self._lock:
            if peer is not None and self._unsorted:
                return self._places[-1]
            lane = self._lanes.get(peer)
            return None if lane is None else lane.last

    def drain(self) -> None:
        """Wait for all calls that were queued, as long as a call may take."""
        end = time.monotonic() + self._world.timeout
        for place in list(self._places):
            place.submitted.wait(max(end - time.monotonic(), 0.0))

    def end(self) -> None:
        """End the threads, once they have made all calls."""
        with self._lock:
            self._ended = True
            for lane in self._lanes.values():
                lane.put(None)


def _wait_for(place: Place) -> None:
    place.submitted.wait()


def _raise(error: BaseException) -> Any:
    raise error
