"""Threads that make a group's queued calls: one for collectives, one for messages to, or from, each rank.

A message waits for one rank only. Behind others it could keep the very message waiting that it waits for:
both of two ranks may ask for what the other sends before they send. Nor does one with a tag, or one that any
rank may send, wait behind those without: it has a thread for as long as there are such.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from .records import MESSAGES
from .work import Place, Work
from .world import World, in_world

_MOMENT: Final = 0.5
"""Seconds that the end of a group waits for messages which were asked for."""
Peer = tuple[str, int | None, int]
"""What a lane of messages is for: the operation, the place of the other rank, None for any, and the tag."""


def peers_of(operation: str, needs: Sequence[int] | None) -> Sequence[Peer]:
    """Return which lanes a call belongs to; none for that of the collectives."""
    return [(operation, place, 0) for place in needs or ()] if operation in MESSAGES else []


class _Lane:
    """Calls in the order in which they were asked for, and the thread that makes them."""

    def __init__(self, name: str, world: World, is_over: Callable[[_Lane], bool] | None = None) -> None:
        """``is_over`` is asked behind each task whether the lane ends; None: it stays."""
        self.last: Place | None = None
        """The progress of what was queued last."""
        self._world, self._is_over = world, is_over
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def put(self, task: Callable[[], None] | None, place: Place | None = None) -> None:
        """Queue a task; ``place`` is its progress. None ends the thread."""
        self.last = place or self.last
        self._tasks.put(task)

    def is_empty(self) -> bool:
        """Return whether nothing is queued."""
        return self._tasks.empty()

    def _run(self) -> None:
        with in_world(self._world):
            while (task := self._tasks.get()) is not None:
                task()
                del task  # which holds the operands
                if self._is_over is not None and self._is_over(self):
                    return


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
        has_lanes: Callable[[], bool] | None = None, post: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        """Queue a call, whose handle is ``work``; ``check`` raises where nothing may be queued any more.

        ``peers`` are of the messages that it makes, none of a collective. ``has_lanes`` connects the group
        first, and says whether messages have lanes of their own. ``post`` is what is done at once, in the
        order of calls, where they have.
        """
        with self._lock:
            check()
            while self._places and self._places[0].is_submitted():
                self._places.popleft()
            self._places.append(work.place)
            if peers and (has_lanes is not None or self._unsorted):
                self._unsorted += 1
                self._lane(None).put(partial(self._sort, work, call, peers, has_lanes, post))
            else:
                self._put(work, call, peers, post)

    def _put(
        self, work: Work, call: Callable[[], Any], peers: Sequence[Peer], post: Callable[[], None] | None
    ) -> None:
        """Give a call to the first of its lanes; it follows what the others have, and they follow it."""
        if peers and post is not None:
            try:
                post()
            except Exception as error:  # raised where the message is waited for
                call = partial(_raise, error)
        work.place.is_receive = bool(peers) and all(peer[0] == "recv" for peer in peers)
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
            name = self._name if peer is None else "-".join(map(str, (self._name, *peer)))
            is_brief = peer is not None and (peer[1] is None or peer[2] != 0)
            is_over = partial(self._is_over, peer) if is_brief else None
            lane = self._lanes[peer] = _Lane(name, self._world, is_over)
        return lane

    def _is_over(self, peer: Peer | None, lane: _Lane) -> bool:
        """Take a lane out that has nothing to do, and return whether that is so."""
        with self._lock:
            is_over = lane.is_empty()
            if is_over:
                del self._lanes[peer]
            return is_over

    def _sort(
        self, work: Work, call: Callable[[], Any], peers: Sequence[Peer],
        has_lanes: Callable[[], bool] | None, post: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        """Put a message into its lane, once that is known."""
        try:
            is_own = has_lanes is None or has_lanes()
        except BaseException as error:  # raised where the message is waited for
            is_own, call = False, partial(_raise, error)
        with self._lock:
            self._unsorted -= 1
            if is_own and not self._ended:
                self._put(work, call, peers, post)
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
        """Wait for all calls that were queued, as long as a call may take.

        What nobody has sent in a moment nobody here waits for: a receive puts its message down in ``wait``.
        """
        end, places = time.monotonic() + self._world.timeout, list(self._places)
        for place in places:
            if not place.is_receive:
                place.submitted.wait(max(end - time.monotonic(), 0.0))
        end = min(end, time.monotonic() + _MOMENT)
        for place in places:
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
