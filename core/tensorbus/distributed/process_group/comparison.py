"""Comparison of what the ranks of a group ask for, where the communicator only queues its work on a device.

Each call is published on the board before the communicator gets it. The device does its work meanwhile, and
nobody waits for anybody. Whoever reads a value on the host looks first whether all ranks have asked for the
same up to the last call that the device is done with: as the value exists, they have called, as a rule.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from zlib import crc32

from ...backend_interface.communication import Rendezvous
from ...errors import DistributedError
from .fingerprint_board import WORD, Board, join
from .fingerprint_relay import Relay

_TOLD: Final = 64
"""Of how many calls ranks tell each other what they sent and expected, once they differ."""
_PATIENCE: Final = 1.0
"""Seconds that a rank waits for what the others have asked for."""


class Parts(NamedTuple):
    """Elements that a rank sends to each rank, and those that it expects of each."""

    sent: Sequence[int]
    expected: Sequence[int]


class Comparison:
    """That of one group on one rank. Safe in many threads.

    What a rank sends to another has to be as much as that expects, which is no text that all have alike. Each
    pair of ranks has a random weight; what is sent counts by it, what is expected counts against it, and the
    balances of all ranks have to add up to zero, whatever the call's number, another weight, makes of them.
    """

    def __init__(self, meeting: Rendezvous) -> None:
        self.agreed = 0
        """The last collective up to which all ranks have asked for the same."""
        self._meeting = meeting
        self._board: Board | None = None
        self._relay: Relay | None = None
        self._waiting: deque[tuple[int, list[int], int]] = deque()
        """What is still to be published: the first number, checksums, the balance."""
        self._balance = 0
        self._parts: deque[tuple[int, Parts]] = deque(maxlen=_TOLD)
        self._room = 0
        """Up to which collective there is room on the board, as far as was seen."""
        self._differ_since = 0.0

    @cached_property
    def _weights(self) -> tuple[list[int], list[int]]:
        """Those of what is sent to each rank, and of what each sends here."""
        here, places = self._meeting.rank, range(self._meeting.size)
        return [_weight(here, place) for place in places], [_weight(place, here) for place in places]

    @property
    def is_joined(self) -> bool:
        """Whether the ranks share a board."""
        return self._board is not None

    @property
    def is_waiting(self) -> bool:
        """Whether something is still to be published, for which there was no room."""
        return bool(self._waiting)

    def join(self, check: Callable[[], None]) -> None:
        """Share a board with the other ranks, which do so behind their first calls."""
        self._board, hosts = join(self._meeting, check)
        host = next(k for k, places in enumerate(hosts) if self._meeting.rank in places)
        if len(hosts) > 1 and self._meeting.rank == hosts[host][0]:
            self._relay = Relay(self._board, self._meeting, len(hosts), host)

    def publish(self, first: int, fingerprints: list[int], parts: Parts | None = None) -> None:
        """Publish the checksums from a collective on; one call at a time. What has no room waits."""
        if parts is not None:
            self._parts.append((first, parts))
            to, of = self._weights
            sent = sum(n * weight for n, weight in zip(parts.sent, to, strict=True))
            expected = sum(n * weight for n, weight in zip(parts.expected, of, strict=True))
            self._balance = (self._balance + _weight(first) * (sent - expected)) & WORD
        board, last = self._board, first + len(fingerprints) - 1
        if board is not None and last > self._room:
            self._room = board.room()
        if board is None or self._waiting or last > self._room:
            self._waiting.append((first, fingerprints, self._balance))
        elif len(fingerprints) == 1:
            board.mine.put(first, fingerprints[0], self._balance)
        else:
            board.mine.extend(first, fingerprints, self._balance)

    def publish_waiting(self) -> bool:
        """Publish what waited, as far as there is room; return whether all is."""
        board = self._board
        if board is None:
            return True
        while self._waiting:
            first, fingerprints, balance = self._waiting[0]
            room = board.room() + 1 - first
            if room <= 0:
                return False
            board.mine.extend(first, fingerprints[:room], balance)
            if room < len(fingerprints):
                self._waiting[0] = first + room, fingerprints[room:], balance
                return False
            self._waiting.popleft()
        return True

    def agrees(self) -> bool:
        """Compare all that every rank has asked for by now, and return whether it is the same."""
        if self._board is None:
            return True
        number, agrees = self._board.compared()
        if agrees:
            self.agreed = max(self.agreed, number)
        return agrees

    def difference(self, entries: Sequence[tuple[int, int, str]]) -> DistributedError | None:
        """Return the error of ranks that do not agree; None while those that can may still say what they ask.

        ``entries`` are this rank's last calls: number, checksum and text of each.
        """
        meeting = self._meeting
        keys = [f"{meeting.name}/fingerprints/asked/{place}" for place in range(meeting.size)]
        known: dict[int, dict[str, Any]] = {}
        with suppress(DistributedError):  # the store is gone with a rank
            if not self._differ_since:
                self._differ_since = time.monotonic()
                calls = [entry for entry in entries if entry[0] > self.agreed]
                word = {"calls": calls, "parts": [*self._parts]}
                meeting.store.set(keys[meeting.rank], json.dumps(word).encode())
            if not meeting.store.check(keys) and time.monotonic() < self._differ_since + _PATIENCE:
                return None
            known = {
                rank: json.loads(meeting.store.get(key, _PATIENCE))
                for rank, key in zip(meeting.ranks, keys, strict=True)
                if meeting.store.check([key])
            }
        return DistributedError(_differing(meeting, known))

    def end(self) -> None:
        """Carry nothing on any more: the group has failed."""
        if self._relay is not None:
            self._relay.end()

    def close(self) -> None:
        """Leave, once all that this rank has published is where it is compared."""
        if self._relay is not None:
            self._relay.close()


def numbered(sequence: int, fingerprint: int, asked: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the number of each collective of a call, the fingerprint after it, and what was asked."""
    entries = []
    for text in asked:
        sequence += 1
        fingerprint = crc32(text.encode(), fingerprint)
        entries.append((sequence, fingerprint, text))
    return entries


def first_difference(
    meeting: Rendezvous, sequence: int, entries: Sequence[tuple[int, int, str]]
) -> DistributedError | None:
    """Return the error of ranks that differ up to a collective, by the store; None where they do not.

    All ranks call it with their last calls, as ``numbered`` has them; all compare with the first that comes.
    """
    here, mine = meeting.ranks[meeting.rank], [[*entry] for entry in entries]
    key = f"{meeting.name}/calls/{sequence}"
    rank, theirs = json.loads(meeting.store.compare_set(key, b"", json.dumps([here, mine]).encode()))
    if theirs == mine:
        return None
    pairs = [(a, b) for a, b in zip(mine, theirs, strict=False) if a != b]
    (number, _, asked), (_, _, other) = pairs[0]
    return DistributedError(
        f"the ranks ask for different things: rank {here}: {asked}, rank {rank}: {other}, both call"
        f" {number} of group {meeting.name!r}."
    )


def _weight(*numbers: int) -> int:
    """Return an odd number of 64 bits that looks random: the same on every rank."""
    return int.from_bytes(blake2b(repr(numbers).encode(), digest_size=8).digest(), "big") | 1


def _differing(meeting: Rendezvous, known: dict[int, dict[str, Any]]) -> str:
    """Return what ranks do not agree on, by the words that are known of them."""
    calls = {rank: {n: text for n, _, text in word["calls"]} for rank, word in known.items()}
    for number in sorted({n for of in calls.values() for n in of}):
        asked = {rank: of[number] for rank, of in calls.items() if number in of}
        if len({*asked.values()}) > 1:
            text = ", ".join(f"rank {rank}: {text}" for rank, text in asked.items())
            return f"the ranks ask for different things: {text}, call {number} of group {meeting.name!r}."
    parts = {rank: {n: Parts(*of) for n, of in word["parts"]} for rank, word in known.items()}
    for number in sorted({n for of in parts.values() for n in of}):
        there = [(place, rank) for place, rank in enumerate(meeting.ranks) if number in parts.get(rank, {})]
        for place, rank in there:
            for to, other in there:
                sent, expected = parts[rank][number].sent[to], parts[other][number].expected[place]
                if sent != expected:
                    text = calls[rank].get(number, "a call")
                    return (
                        f"the ranks ask for different things: in {text}, call {number} of group"
                        f" {meeting.name!r}, rank {rank} sends {sent} elements to rank {other}, which expects"
                        f" {expected}."
                    )
    return (
        f"the ranks ask for different things in group {meeting.name!r}. tensorbus.distributed.records() on"
        f" each rank shows what they did last."
    )
