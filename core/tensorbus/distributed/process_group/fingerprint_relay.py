"""Carries what ranks of several machines have asked for from one to the others, through the store.

One rank of each machine has a thread for it. Its rounds follow the collectives: a round begins where there is
something new, and ends once all machines have come to it. The first one combines what all have sent.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ...backend_interface.communication import Rendezvous
from ...errors import DistributedError, DistributedTimeoutError
from .fingerprint_board import Board, combined, merged
from .work import pauses

_GLANCE: Final = 0.25
"""Seconds between two looks at whether the group has ended, while another machine is waited for."""
_LAST_SECONDS: Final = 5.0
"""How long a rank that leaves carries on for those that do not."""
_Entry = tuple[int, int]


class _EndedError(Exception):
    """The end of the group while another machine was waited for."""


class Relay:
    """The thread of one machine, number ``host`` of ``hosts``."""

    def __init__(self, board: Board, meeting: Rendezvous, hosts: int, host: int) -> None:
        assert board.everyone is not None
        self._board, self._everyone, self._meeting = board, board.everyone, meeting
        self._hosts, self._host = hosts, host
        self._sent = self._round = 0
        self._arrived: list[deque[_Entry]] = [deque() for _ in range(hosts)]
        """What the first one has got of each machine, and not of all."""
        self._ends = float("inf")
        """When it ends at the latest, by ``time.monotonic``."""
        self._thread = threading.Thread(target=self._run, name="tensorbus-relay", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End at once: the group has failed."""
        self._ends = 0.0

    def close(self) -> None:
        """End once all machines know of all that this one has asked for: others may still compare it."""
        self._ends = min(self._ends, time.monotonic() + _LAST_SECONDS)
        self._thread.join(max(self._ends - time.monotonic(), 0.0) + _GLANCE)

    def _run(self) -> None:
        with suppress(_EndedError, DistributedError):  # the store is gone: whoever waits is told by the watch
            while self._await_news():
                self._exchange()

    def _await_news(self) -> bool:
        """Wait until a round is due; return False where none will be."""
        for _ in pauses():
            here, everywhere = self._reached(), self._everyone.latest
            if here > self._sent or everywhere < here:
                return True
            if everywhere >= self._last_due() or time.monotonic() > self._ends:
                break
        return False

    def _last_due(self) -> float:
        """Return the collective behind which nothing comes: the last one of a rank that leaves."""
        return float("inf") if self._ends == float("inf") else self._board.mine.latest

    def _reached(self) -> int:
        return min(column.latest for column in self._board.columns)

    def _exchange(self) -> None:
        """Send what is new, and write down what holds for all machines."""
        self._round += 1
        upto = self._reached()
        entries = [combined(self._board.columns, number) for number in range(self._sent + 1, upto + 1)]
        self._sent = upto
        start, store = f"{self._meeting.name}/fingerprints/round", self._meeting.store
        down = f"{start}/{self._round}"
        if self._host:
            store.set(f"{down}/{self._host}", _packed(entries))
            whole = _unpacked(self._get(down))
        else:
            self._arrived[0] += entries
            for host in range(1, self._hosts):
                self._arrived[host] += _unpacked(self._get(f"{down}/{host}"))
                store.delete_key(f"{down}/{host}")
            count = min(map(len, self._arrived))
            whole = [merged([arrived.popleft() for arrived in self._arrived]) for _ in range(count)]
            store.set(down, _packed(whole))
            store.delete_key(f"{start}/{self._round - 1}")  # those who are here have read it
        for fingerprint, balance in whole:
            self._everyone.put(self._everyone.latest + 1, fingerprint, balance)

    def _get(self, key: str) -> bytes:
        while True:
            try:
                return self._meeting.store.get(key, _GLANCE)
            except DistributedTimeoutError:
                if time.monotonic() > self._ends:
                    raise _EndedError from None


def _packed(entries: Sequence[_Entry]) -> bytes:
    return array("Q", [word for entry in entries for word in entry]).tobytes()


def _unpacked(data: bytes) -> list[_Entry]:
    words = array("Q", data)
    return [*zip(words[0::2], words[1::2], strict=True)]
