"""The meeting of a group's threads: each leaves what it has, and the last one to come computes for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from tensorbus.backend_api import Mailbox, Rendezvous, WeakTable
from tensorbus.errors import DistributedError, DistributedTimeoutError

C = TypeVar("C")
"""What a rank brings."""
R = TypeVar("R")
"""What a rank gets."""
_meetings: Final[WeakTable[Any, dict[str, Meeting]]] = WeakTable()
"""By store and name: the ranks of a program share its store."""
_lock: Final = threading.Lock()
_GLANCE: Final = 0.1
"""Seconds between two looks at a rank that combines, once the time to come is over."""


class _Round:
    """One collective: what the ranks ask for and bring, then what each gets."""

    def __init__(self, size: int) -> None:
        self.asked: list[str | None] = [None] * size
        self.contributed: list[Any] = [None] * size
        self.results: Sequence[Any] = ()
        self.error: BaseException | None = None
        self.over = False


class Meeting:
    """Shared by the ranks of a group."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self.name, self.ranks, self.timeout = rendezvous.name, rendezvous.ranks, rendezvous.timeout
        self._round = _Round(len(self.ranks))
        self.mailboxes = [Mailbox(self.ranks) for _ in self.ranks]
        """What was sent to each rank."""
        self._changed = threading.Condition()
        self._ended = ""
        self._error: type[DistributedError] = DistributedError

    def exchange(self, rank: int, asked: str, contributed: C, combine: Callable[[list[C]], Sequence[R]]) -> R:
        """Bring something, wait for all, and return this rank's place of what ``combine`` makes of it all.

        One thread combines, while the others wait. What it raises is raised on every rank.
        """
        with self._changed:
            self.check(asked)
            now = self._round
            now.asked[rank], now.contributed[rank] = asked, contributed
            last = all(a is not None for a in now.asked)
            if not last:
                self._wait(lambda: now.over, asked, lambda: self._absent(now))
        if last:
            self._finish(now, combine)
        if now.error is not None:
            text = str(now.error) if isinstance(now.error, DistributedError) else f"{asked}: {now.error}"
            raise DistributedError(text) from now.error
        own: R = now.results[rank]
        return own

    def _finish(self, now: _Round, combine: Callable[[list[Any]], Sequence[Any]]) -> None:
        try:
            if len(set(now.asked)) > 1:
                calls = "; ".join(
                    f"rank {rank}: {asked}" for rank, asked in zip(self.ranks, now.asked, strict=True)
                )
                raise DistributedError(f"the ranks ask for different things: {calls}.")
            now.results = combine(now.contributed)
        except BaseException as error:  # raised on every rank
            now.error = error
        finally:
            with self._changed:
                now.over = True
                self._round = _Round(len(self.ranks))
                self._changed.notify_all()

    def end(self, reason: str, error: type[DistributedError] = DistributedError) -> None:
        """End all who wait, by an error of the class ``error``."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = reason, error
            self._changed.notify_all()
        for mailbox in self.mailboxes:
            mailbox.wake()

    def _absent(self, now: _Round) -> list[int]:
        return [rank for rank, asked in zip(self.ranks, now.asked, strict=True) if asked is None]

    def check(self, asked: str) -> None:
        """Raise where the meeting has ended."""
        if self._ended:
            raise self._error(f"{asked}: the other ranks are gone: {self._ended}.")

    def _wait(self, ready: Callable[[], bool], asked: str, absent: Callable[[], list[int]]) -> None:
        end = time.monotonic() + self.timeout
        while not ready():
            self.check(asked)
            left = end - time.monotonic()
            missing = absent() if left <= 0 else []
            if left <= 0 and not missing:  # all are here, and the last one combines
                left = _GLANCE
            if missing:
                ranks = ", ".join(map(str, missing))
                reason = f"{asked} waited {self.timeout:g} seconds for rank {ranks}"
                self.end(reason, DistributedTimeoutError)
                raise DistributedTimeoutError(
                    f"{asked}: rank {ranks} did not come within {self.timeout:g} seconds. It works still,"
                    f" waits elsewhere, or is gone; tensorbus.distributed.records() on each rank shows what"
                    f" it did last."
                )
            self._changed.wait(left)


def meeting_of(rendezvous: Rendezvous) -> Meeting:
    """Return the meeting of a group: the same object on each of its ranks."""
    with _lock:
        return _meetings.setdefault(rendezvous.store, {}).setdefault(rendezvous.name, Meeting(rendezvous))
