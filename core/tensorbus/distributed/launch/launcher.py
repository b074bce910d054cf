"""``tensorbus run``: starts the ranks of a program on this machine and shows what they say."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, TextIO

from ... import plugins
from ...errors import ArgumentError
from ..stores.urls import open_store

_TAIL: Final = 40
"""How many of the last lines of a rank that failed are shown again."""
_GRACE: Final = 5.0
"""Seconds between asking a rank to end and ending it."""
_POLL: Final = 0.02
_PATIENCE: Final = 2.0
"""Seconds that a rank which lost another one leaves to that one to be seen."""
_CONSEQUENCES: Final = ("tensorbus.errors.DistributedError", "tensorbus.errors.DistributedTimeoutError")
"""How the last line begins of a rank that lost another."""


class _Rank:
    """A process, and what it says, line by line."""

    def __init__(
        self, number: int, process: subprocess.Popen[str], show: Callable[[int, str, bool], None]
    ) -> None:
        self.number, self.process = number, process
        self.tail: deque[str] = deque(maxlen=_TAIL)
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(stream, wrong, show), daemon=True)
            for stream, wrong in ((process.stdout, False), (process.stderr, True))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str], wrong: bool, show: Callable[[int, str, bool], None]) -> None:
        for line in stream:
            if wrong:
                self.tail.append(line)
            show(self.number, line, wrong)

    def drain(self) -> None:
        """Wait for what it said last."""
        for reader in self._readers:
            reader.join(_GRACE)


def run(
    command: Sequence[str], size: int, *, max_restarts: int = 0, store: str | None = None,
    out: TextIO | None = None, err: TextIO | None = None,
) -> int:  # fmt: skip
    """Start ``command`` as ``size`` ranks, and return 0, or the exit code of the rank that failed first.

    Each line is shown with its rank. When a rank fails the others are ended, and its last lines are shown
    once more; up to ``max_restarts`` times all are started again. The ranks meet at ``store``, or at one of
    their own: ``tcp://`` where tensorbus-tcp is installed, else a file.

    Raises ``ArgumentError`` for numbers that make no sense.
    """
    if size < 1:
        raise ArgumentError(f"run: at least 1 rank is needed, got {size}.")
    if max_restarts < 0:
        raise ArgumentError(f"run: max-restarts must be >= 0, got {max_restarts}.")
    out, err = out or sys.stdout, err or sys.stderr
    for attempt in range(max_restarts + 1):
        with _interrupted_by(signal.SIGTERM), _meeting(store) as url:
            variables = {"TENSORBUS_STORE": url, "TENSORBUS_RESTART": str(attempt)}
            if store is None:
                variables["TENSORBUS_STORE_SERVED"] = "1"  # else by the first rank, where it needs a server
            failed = _run_once(command, size, variables, out, err)
        if failed is None:
            return 0
        code = failed.process.returncode
        print(f"\ntensorbus run: rank {failed.number} of {size} {_ending(code)}.", file=err)
        if failed.tail and size > 1:
            print("Its last lines:\n" + "".join(f"  {line}" for line in failed.tail), file=err, end="")
        if attempt < max_restarts:
            print(f"Starting all again ({attempt + 1} of {max_restarts} restarts).", file=err)
    return code if code > 0 else 128 - code


def _run_once(
    command: Sequence[str], size: int, variables: Mapping[str, str], out: TextIO, err: TextIO
) -> _Rank | None:
    """Run the ranks to their end; return the one that failed first, if one did."""
    width, lock, over = len(str(size - 1)), threading.Lock(), threading.Event()

    def show(number: int, line: str, wrong: bool) -> None:
        if wrong and over.is_set():
            return  # ranks that are ended because of another's failure
        if size > 1 and not line.endswith("\n"):
            line += "\n"  # another rank's line may be next
        with lock:
            stream = err if wrong else out
            stream.write(line if size == 1 else f"[{number:{width}}] {line}")
            stream.flush()

    ranks: list[_Rank] = []
    secret = os.environ.get("TENSORBUS_STORE_SECRET") or secrets.token_hex(16)
    try:
        for number in range(size):
            environment = {
                **os.environ, "RANK": str(number), "WORLD_SIZE": str(size), "LOCAL_RANK": str(number),
                "LOCAL_WORLD_SIZE": str(size), "TENSORBUS_STORE_SECRET": secret, "PYTHONUNBUFFERED": "1",
                **variables,
            }  # fmt: skip
            process = subprocess.Popen(
                command, env=environment, text=True, errors="replace", stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            ranks.append(_Rank(number, process, show))
        while True:
            codes = [rank.process.poll() for rank in ranks]
            if any(codes):
                failed = _cause(ranks)
                over.set()
                return failed
            if all(code == 0 for code in codes):
                return None
            time.sleep(_POLL)
    finally:
        over.set()
        _end(ranks)


def _cause(ranks: Sequence[_Rank]) -> _Rank:
    """Return the rank that failed by itself: one that says that another is gone may be seen first."""
    end = time.monotonic() + _PATIENCE
    while True:
        failed = [rank for rank in ranks if rank.process.poll()]
        for rank in failed:
            rank.drain()
            if not any(line.startswith(_CONSEQUENCES) for line in rank.tail):
                return rank
        if time.monotonic() > end:
            return failed[0]
        time.sleep(_POLL)


@contextlib.contextmanager
def _interrupted_by(number: signal.Signals) -> Iterator[None]:
    """Let a signal end the block as an exit does, so that no rank outlives it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(number, leave)
    try:
        yield
    finally:
        signal.signal(number, before)


def _end(ranks: Sequence[_Rank]) -> None:
    """End the ranks that still run: asked first, then not."""
    for rank in ranks:
        if rank.process.poll() is None:
            rank.process.terminate()
    end = time.monotonic() + _GRACE
    for rank in ranks:
        with contextlib.suppress(subprocess.TimeoutExpired):
            rank.process.wait(max(end - time.monotonic(), 0.01))
        if rank.process.poll() is None:
            rank.process.kill()
            rank.process.wait()
        rank.drain()
        for stream in (rank.process.stdout, rank.process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def _meeting(store: str | None) -> Iterator[str]:
    """Give the URL of a store for one run."""
    if store is not None:
        yield store
    elif "tcp" in plugins.store_schemes():
        before = os.environ.get("TENSORBUS_STORE_SECRET")
        os.environ["TENSORBUS_STORE_SECRET"] = before or secrets.token_hex(16)
        served = open_store("tcp://127.0.0.1:0", serve=True)
        try:
            yield served.url  # type: ignore[attr-defined]
        finally:
            served.close()  # type: ignore[attr-defined]
            if before is None:
                del os.environ["TENSORBUS_STORE_SECRET"]
    else:
        with tempfile.TemporaryDirectory(prefix="tensorbus-run-") as folder:
            yield f"file://{Path(folder) / 'store'}"


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
