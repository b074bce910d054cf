"""The board on which ranks publish what they have asked for, in memory that those of one machine share.

Each rank writes a column: under the number of each collective the running checksum of all it has asked for.
Nobody waits for anybody there, and to write takes less than a microsecond; whoever wants to know whether all
ranks agree reads the others' columns. ``join`` finds out which ranks can share memory. Where they are of
several machines, ``fingerprint_relay`` writes a further column, in which all of them are combined.
"""

from __future__ import annotations

import json
import mmap
import os
import platform
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...backend_interface.communication import Rendezvous
from ...errors import DistributedTimeoutError

ENTRIES: Final = 1024
"""How many collectives a rank may be ahead of the slowest one."""
DIFFERENT: Final = 1 << 32
"""In the place of a checksum, which is less: the ranks that it stands for do not agree."""
WORD: Final = (1 << 64) - 1
_WORDS: Final = 4
_HEAD: Final = 8
"""Words before the entries: the number of the last collective, and nothing up to the next cache line."""
_COLUMN: Final = _HEAD + _WORDS * ENTRIES
_GLANCE: Final = 0.25
"""Seconds between two looks at whether a group has ended, while its ranks join."""


class Column:
    """A ring of entries that one rank writes, and others read.

    An entry is a number, a checksum, a balance and all of these combined by xor: memory that another
    processor writes may show some words of an entry before others.
    """

    __slots__ = ("_words",)

    def __init__(self, words: memoryview) -> None:
        self._words = words

    @property
    def latest(self) -> int:
        """The number of the last collective, 0 for none."""
        latest: int = self._words[0]
        return latest

    def put(self, number: int, fingerprint: int, balance: int) -> None:
        """Write what holds up to a collective."""
        words, at = self._words, _HEAD + number % ENTRIES * _WORDS
        words[at] = number
        words[at + 1] = fingerprint
        words[at + 2] = balance
        words[at + 3] = number ^ fingerprint ^ balance
        words[0] = number

    def extend(self, first: int, fingerprints: Sequence[int], balance: int) -> None:
        """Write the entries of collectives that follow each other: no more than the ring has."""
        done = 0
        while done < len(fingerprints):
            number = first + done
            place = number % ENTRIES
            part = fingerprints[done : done + ENTRIES - place]
            numbers = range(number, number + len(part))
            entries = array("Q", bytes(8 * _WORDS * len(part)))
            entries[0::_WORDS] = array("Q", numbers)
            entries[1::_WORDS] = array("Q", part)
            entries[2::_WORDS] = array("Q", [balance]) * len(part)
            entries[3::_WORDS] = array(
                "Q", [n ^ fingerprint ^ balance for n, fingerprint in zip(numbers, part, strict=True)]
            )
            at = _HEAD + place * _WORDS
            self._words[at : at + len(entries)] = entries
            done += len(part)
        self._words[0] = first + len(fingerprints) - 1

    def get(self, number: int) -> tuple[int, int] | None:
        """Return the checksum and the balance up to a collective; None where they are not there.

        Not yet, which may be so for a moment though ``latest`` says more, or not any more.
        """
        at = _HEAD + number % ENTRIES * _WORDS
        of, fingerprint, balance, check = self._words[at : at + _WORDS]
        return (fingerprint, balance) if of == number and check == of ^ fingerprint ^ balance else None


class Board:
    """The columns of the ranks of one machine, of which this rank writes the one at ``place``.

    ``everyone`` is that of all machines, None where there is only this one.
    """

    def __init__(self, columns: Sequence[Column], place: int, everyone: Column | None) -> None:
        self.columns, self.mine, self.everyone = columns, columns[place], everyone

    def reached(self) -> int:
        """Return the last collective that all ranks have asked for, as far as is known here."""
        columns = self.columns if self.everyone is None else [self.everyone]
        return min([column.latest for column in columns])

    def room(self) -> int:
        """Return up to which collective this rank may write: what others still compare is kept."""
        return self.reached() + ENTRIES - 1

    def compared(self) -> tuple[int, bool]:
        """Return the last collective that all ranks have asked for, and whether they agree up to there."""
        columns = self.columns if self.everyone is None else [self.everyone, self.mine]
        while number := self.reached():
            entries = [entry for column in columns if (entry := column.get(number)) is not None]
            if len(entries) == len(columns):
                fingerprints, balances = zip(*entries, strict=True)
                total = sum(balances) & WORD if self.everyone is None else balances[0]
                return number, len({*fingerprints}) == 1 and not total
        return 0, True


def combined(columns: Sequence[Column], number: int) -> tuple[int, int]:
    """Return what holds for several ranks, which have asked for as much; those that write wait for it."""
    while True:
        entries = [entry for column in columns if (entry := column.get(number)) is not None]
        if len(entries) == len(columns):
            return merged(entries)


def merged(entries: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the checksum that all have, ``DIFFERENT`` where they differ, and the sum of the balances."""
    fingerprints, balances = zip(*entries, strict=True)
    return fingerprints[0] if len({*fingerprints}) == 1 else DIFFERENT, sum(balances) & WORD


def join(meeting: Rendezvous, check: Callable[[], None]) -> tuple[Board, list[list[int]]]:
    """Return this rank's board, and the places of the group's ranks by machine. All ranks call it.

    ``check`` raises what has ended the group. Ranks of a machine that cannot share memory, as in containers,
    count as machines of their own. Raises ``DistributedTimeoutError`` where a rank does not come.
    """
    here = meeting.rank
    hosts = _places(meeting, check, "machine", machine())
    mine = next(host for host in hosts if here in host)
    memory, path = None, ""
    if here == mine[0]:
        with suppress(OSError):
            memory, path = _created((len(mine) + 1) * _COLUMN * 8)
        meeting.store.set(f"{meeting.name}/fingerprints/file/{here}", path.encode())
    else:
        with suppress(OSError):
            path = _get(meeting, check, f"{meeting.name}/fingerprints/file/{mine[0]}").decode()
            memory = _opened(path, (len(mine) + 1) * _COLUMN * 8)
    hosts = _places(meeting, check, "opened", f"alone {here}" if memory is None else f"with {mine[0]}")
    if here == mine[0] and path:  # nothing is left behind, however the ranks end
        with suppress(OSError):
            os.unlink(path)
    host = next(host for host in hosts if here in host)
    words = memoryview(mmap.mmap(-1, 2 * _COLUMN * 8) if memory is None else memory).cast("Q")
    columns = [Column(words[k * _COLUMN : (k + 1) * _COLUMN]) for k in range(len(host) + 1)]
    return Board(columns[:-1], host.index(here), columns[-1] if len(hosts) > 1 else None), hosts


def machine() -> str:
    """Return what tells this machine from others."""
    name = platform.node()
    with suppress(OSError):
        name += Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return name


def _created(nbytes: int) -> tuple[Any, str]:
    """Return new memory that others can open by its path. Raises ``OSError`` where there is no room."""
    shared = "/dev/shm"
    is_there = os.path.isdir(shared) and os.access(shared, os.W_OK)
    descriptor, path = tempfile.mkstemp(prefix="tensorbus-", dir=shared if is_there else None)
    try:
        try:
            os.truncate(descriptor, nbytes)
            if hasattr(os, "posix_fallocate"):  # else a full memory ends whoever writes there
                os.posix_fallocate(descriptor, 0, nbytes)
            return mmap.mmap(descriptor, nbytes), path
        finally:
            os.close(descriptor)
    except BaseException:
        os.unlink(path)
        raise


def _opened(path: str, nbytes: int) -> Any:
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, nbytes)
    finally:
        os.close(descriptor)


def _places(meeting: Rendezvous, check: Callable[[], None], what: str, word: str) -> list[list[int]]:
    """Tell a word; return the places of all ranks by their words, which the first of them has compared."""
    store, start = meeting.store, f"{meeting.name}/fingerprints/{what}"
    store.set(f"{start}/{meeting.rank}", word.encode())
    if not meeting.rank:
        places: dict[bytes, list[int]] = {}
        for place in range(meeting.size):
            places.setdefault(_get(meeting, check, f"{start}/{place}"), []).append(place)
        store.set(start, json.dumps([*places.values()]).encode())
    together: list[list[int]] = json.loads(_get(meeting, check, start))
    return together


def _get(meeting: Rendezvous, check: Callable[[], None], key: str) -> bytes:
    """Wait for a key, as long as a rank is waited for; the end of the group ends that."""
    end = time.monotonic() + meeting.timeout
    while True:
        try:
            return meeting.store.get(key, max(min(_GLANCE, end - time.monotonic()), 0.001))
        except DistributedTimeoutError as error:
            check()
            if time.monotonic() >= end:
                raise DistributedTimeoutError(
                    f"a rank did not come to the first call of group {meeting.name!r} within"
                    f" {meeting.timeout:g} seconds: it works still, waits elsewhere, or is gone."
                ) from error
