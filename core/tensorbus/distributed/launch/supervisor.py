"""Runs ranks to their end: shows what they say, finds the one that failed first, ends and restarts all.

What starts them is a launcher, of this machine or a plugin's; this is the same for each.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TextIO

from ...backend_interface.launching import Launcher, LaunchRequest, Ranks
from ...errors import ArgumentError, PluginError
from ...plugins.contract import check_methods, naming
from .rank_output import RankOutput

_POLL: Final = 0.02
_PATIENCE: Final = 2.0
"""Seconds that a rank which lost another one leaves to that one to be seen."""
_CONSEQUENCES: Final = ("tensorbus.errors.DistributedError", "tensorbus.errors.DistributedTimeoutError")
"""How the last line begins of a rank that lost another."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The rank that failed by itself; ``code`` is its exit code, -n where signal n ended it."""

    rank: int
    size: int
    code: int
    last_lines: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """The exit code that a shell would show."""
        return self.code if self.code > 0 else 128 - self.code

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size} {_ending(self.code)}"


def supervise(
    launcher: Launcher, request: LaunchRequest, *, max_restarts: int = 0, report: bool = True,
    out: TextIO | None = None, err: TextIO | None = None, log_dir: Path | None = None,
) -> Failed | None:  # fmt: skip
    """Run the ranks to their end; return the one that failed first in the last attempt, None where none did.

    Each line is shown with its rank. When a rank fails the others are ended, and, where ``report`` is True,
    its last lines are shown once more; up to ``max_restarts`` times all are started again. ``log_dir`` is a
    folder for what each rank says: ``attempt-0/rank-0.out`` and ``rank-0.err``.

    At a Ctrl-C the ranks get one too, and some seconds to end by; another one ends them at once.

    Raises ``ArgumentError`` for numbers that make no sense, ``DistributedError`` where lines cannot be
    written, and what the launcher raises.
    """
    if request.size < 1:
        raise ArgumentError(f"run: at least 1 rank is needed, got {request.size}.")
    if max_restarts < 0:
        raise ArgumentError(f"run: max-restarts must be >= 0, got {max_restarts}.")
    out, err = out or sys.stdout, err or sys.stderr
    failed = None
    with _interrupted_by("SIGTERM", "SIGHUP", "SIGQUIT"), contextlib.closing(launcher):
        for attempt in range(max_restarts + 1):
            variables = {**request.environment, "TENSORBUS_RESTART": str(attempt)}
            folder = None if log_dir is None else _log_folder(log_dir, attempt)
            with contextlib.closing(RankOutput(request.size, out, err, folder)) as output:
                failed = _run_once(launcher, replace(request, environment=variables), output)
                output.check()
            if failed is None:
                break
            if report:
                output.say(f"\ntensorbus run: {failed}.")
                if failed.last_lines and request.size > 1:
                    lines = "".join(f"  {line}" for line in failed.last_lines)
                    output.say(f"Its last lines:\n{lines.removesuffix(chr(10))}")
                if folder is not None:
                    output.say(f"What each rank said is in {folder}.")
            if attempt < max_restarts:
                output.say(f"Starting all again ({attempt + 1} of {max_restarts} restarts).")
    return failed


def _log_folder(log_dir: Path, attempt: int) -> Path:
    folder = log_dir / f"attempt-{attempt}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"run: log-dir must be a folder that can be written to: {error}.") from None
    return folder


def _run_once(launcher: Launcher, request: LaunchRequest, output: RankOutput) -> Failed | None:
    size = request.size
    with naming("the launcher's start"):
        ranks = launcher.start(request, output.show)
    check_methods("the launcher's start", ranks, ("codes", "drain", "end"), "Ranks")
    try:
        while True:
            output.check()
            codes = _codes(ranks, size)
            if any(codes):
                number = _cause(ranks, size, output)
                code = _codes(ranks, size)[number]
                assert code is not None, "a rank that has ended runs again"
                return Failed(number, size, code, tuple(output.last_lines[number]))
            if all(code == 0 for code in codes):
                for number in range(size):
                    ranks.drain(number)
                return None
            time.sleep(_POLL)
    finally:
        error = sys.exc_info()[1]
        if isinstance(error, KeyboardInterrupt):
            output.say("tensorbus run: interrupted; the ranks are ending. Another Ctrl-C ends them at once.")
        elif isinstance(error, _Asked):
            output.say(f"tensorbus run: {error.signal} has come; the ranks are being ended.")
            output.end_errors()
        else:
            output.end_errors()
        ranks.end()


def _codes(ranks: Ranks, size: int) -> Sequence[int | None]:
    """Return the exit code of each rank, None while it runs."""
    with naming("the launcher's codes"):
        codes = ranks.codes()
    is_list = isinstance(codes, Sequence) and len(codes) == size
    if not is_list or not all(code is None or isinstance(code, int) for code in codes):
        raise PluginError(
            f"the launcher's codes are {codes!r}, where one is due for each of {size} ranks: an exit code, or"
            f" None while it runs."
        )
    return codes


def _cause(ranks: Ranks, size: int, output: RankOutput) -> int:
    """Return the rank that failed by itself: one that says that another is gone may be seen first."""
    end = time.monotonic() + _PATIENCE
    while True:
        failed = [number for number, code in enumerate(_codes(ranks, size)) if code]
        for number in failed:
            ranks.drain(number)
            if not any(line.startswith(_CONSEQUENCES) for line in output.last_lines[number]):
                return number
        if time.monotonic() > end:
            return failed[0]
        time.sleep(_POLL)


class _Asked(SystemExit):
    """The exit that a signal has asked for, with the code that a shell would show; ``signal`` is its name."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number).name


@contextlib.contextmanager
def _interrupted_by(*names: str) -> Iterator[None]:
    """Let signals, where the platform has them, end the block as an exit does: no rank outlives it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: object) -> None:
        raise _Asked(number)

    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
    before = {number: signal.signal(number, leave) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
