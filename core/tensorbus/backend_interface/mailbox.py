"""The mailbox of one rank of a group: what other ranks send to it, and what it asks for, meet here.

A message has a sender and a tag; a receive names a tag, and a sender or none. Messages are matched to
receives in the order in which these were posted, as MPI's are, whichever threads wait for them later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count, repeat
from typing import Any, Final

from ..errors import DistributedTimeoutError

_GLANCE: Final = 0.25
"""Seconds between two looks at whether the wait still makes sense."""
_SPINS: Final = 50
_PAUSES: Final = (20e-6, 1e-3)
"""The shortest and the longest pause between two polls behind the first ones, in seconds."""


def _pauses() -> Iterator[float]:
    """Return the pauses between polls, which begin at once and become rarer."""
    yield from repeat(0.0, _SPINS)
    pause = _PAUSES[0]
    while True:
        yield pause
        pause = min(pause * 1.5, _PAUSES[1])


class PostedReceive:
    """A receive that was posted: ``source`` and ``tag`` say for what; then its sender and its message."""

    __slots__ = ("message", "sender", "source", "tag")

    def __init__(self, source: int | None, tag: int) -> None:
        self.source, self.tag = source, tag
        self.sender, self.message = -1, None
        """The sender is -1 until the message is there."""


class Mailbox:
    """Messages that nobody has asked for yet, and receives that wait; any thread may use it.

    >>> box = Mailbox()
    >>> first = box.post(None, 0)
    >>> box.put(2, 7, "with a tag")
    >>> box.put(1, 0, "without")
    >>> box.wait(first, "recv", 1.0), box.wait(box.post(2, 7), "recv", 1.0)
    (('without', 1), ('with a tag', 2))
    """

    def __init__(self, ranks: Sequence[int] = ()) -> None:
        """``ranks`` are the numbers in the program of the group's places, which errors name."""
        self._ranks = ranks
        self._changed = threading.Condition()
        self._numbers = count()
        self._unasked: dict[int, dict[int, deque[tuple[int, Any]]]] = {}
        """By tag, then by sender: each message with the number of its arrival."""
        self._posted: dict[int, list[PostedReceive]] = {}
        """By tag, in the order in which they were posted."""

    def put(self, sender: int, tag: int, message: Any) -> None:
        """Leave a message of a rank for the first receive that takes it."""
        with self._changed:
            waiting = self._posted.get(tag, [])
            for posted in waiting:
                if posted.source is None or posted.source == sender:
                    waiting.remove(posted)
                    posted.message, posted.sender = message, sender
                    self._changed.notify_all()
                    return
            box = self._unasked.setdefault(tag, {}).setdefault(sender, deque())
            box.append((next(self._numbers), message))

    def post(self, source: int | None, tag: int) -> PostedReceive:
        """Ask for the next message with a tag that a rank sends; None: any rank. Waits for nobody."""
        posted = PostedReceive(source, tag)
        with self._changed:
            boxes = self._unasked.get(tag, {})
            if source is None and boxes:
                source = min(boxes, key=lambda sender: boxes[sender][0][0])
            if source in boxes:
                posted.sender = source
                posted.message = boxes[source].popleft()[1]
                if not boxes[source]:
                    del boxes[source]
                if not boxes:
                    del self._unasked[tag]
            else:
                self._posted.setdefault(tag, []).append(posted)
        return posted

    def wait(
        self, posted: PostedReceive, what: str, seconds: float, check: Callable[[], None] | None = None,
        poll: Callable[[], None] | None = None,
    ) -> tuple[Any, int]:  # fmt: skip
        """Wait for the message of a receive, and return it with its sender.

        ``check`` raises where none can come any more. ``poll`` looks for messages and puts them here; without
        one they come by other threads. Raises ``DistributedTimeoutError`` after ``seconds``, naming ``what``
        waited. Where it raises, the receive is withdrawn: the message is left for another one.
        """
        end, pauses = time.monotonic() + seconds, _pauses()
        try:
            while posted.sender < 0:
                if poll is not None:
                    poll()
                    if posted.sender >= 0:
                        break
                    time.sleep(next(pauses))
                with self._changed:
                    if posted.sender >= 0:
                        break
                    if check is not None:
                        check()
                    left = end - time.monotonic()
                    if left <= 0:
                        raise self._late(posted, what, seconds)
                    if poll is None:
                        self._changed.wait(min(left, _GLANCE))
        except BaseException:
            self.withdraw(posted)
            raise
        return posted.message, posted.sender

    def withdraw(self, posted: PostedReceive) -> None:
        """Take a receive back; a message that has come for it is left as the oldest of its sender."""
        with self._changed:
            waiting = self._posted.get(posted.tag, [])
            if posted in waiting:
                waiting.remove(posted)
            elif posted.sender >= 0:
                boxes = self._unasked.setdefault(posted.tag, {})
                boxes.setdefault(posted.sender, deque()).appendleft((-1, posted.message))

    def wake(self) -> None:
        """Let who waits look at once whether that still makes sense."""
        with self._changed:
            self._changed.notify_all()

    def _late(self, posted: PostedReceive, what: str, seconds: float) -> DistributedTimeoutError:
        who, source = "no rank sent anything", posted.source
        if source is not None:
            who = f"rank {self._ranks[source] if self._ranks else source} sent nothing"
        tag = f" with tag {posted.tag}" if posted.tag else ""
        return DistributedTimeoutError(
            f"{what}: {who}{tag} within {seconds:g} seconds. Who is to send works still, waits elsewhere, or"
            f" is gone; tensorbus.distributed.records() on each rank shows what it did last."
        )
