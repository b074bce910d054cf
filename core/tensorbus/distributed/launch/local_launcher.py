"""Starts ranks as processes of this machine."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from ... import plugins
from ...backend_interface.launching import LaunchRequest, Show
from ...errors import ArgumentError, DistributedError
from ..stores.urls import open_store

_GRACE: Final = 5.0
"""Seconds between asking a rank to end and ending it."""
_INTERRUPT_GRACE: Final = 15.0
"""The same where a Ctrl-C asks it, at which it may save what it has."""
_POLL: Final = 0.02
_GROUPED: Final = hasattr(os, "killpg") and hasattr(os, "waitid")
"""Whether a signal reaches what a process has started, and its end can be seen before its number is free."""
_OWN: Final = (
    "PMI_", "PMIX_", "HYDI_", "MPI_LOCAL", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "TENSORBUS_STORE_SERVED",
)  # fmt: skip
"""How variables begin that say which rank of another program this is, and whether its store is served."""
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)


class LocalLauncher:
    """Starts ranks here. They meet at ``tcp://`` where tensorbus-tcp is installed, else at a file."""

    def start(self, request: LaunchRequest, show: Show) -> LocalRanks:
        """Start the ranks."""
        return LocalRanks(request, show)

    def close(self) -> None:
        """Nothing is held between starts."""


class _Rank:
    """A process, what it says, line by line, and what it has started: they are one group of processes.

    Its end is only looked at until the group is no longer needed: its number cannot be another's so long.
    """

    def __init__(self, number: int, process: subprocess.Popen[bytes], show: Show) -> None:
        self.number, self.process = number, process
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(stream, wrong, show), daemon=True)
            for stream, wrong in ((process.stdout, False), (process.stderr, True))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[bytes], wrong: bool, show: Show) -> None:
        with io.TextIOWrapper(stream, errors="replace", newline="") as text:
            for line in text:  # up to a carriage return too, as progress bars write it
                show(self.number, line, wrong)

    def code(self) -> int | None:
        """Return the exit code, None while it runs; the system keeps the number of a process that ended."""
        if self.process.returncode is not None or not _GROUPED:
            return self.process.poll()
        try:
            status = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # whoever embeds this program lets the system forget it at once
            return self.process.poll()
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def signal(self, number: int) -> None:
        """Send a signal to it and to what it has started, a session of its own apart."""
        if not _GROUPED:
            if self.process.poll() is None:
                self.process.send_signal(number)
        elif self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left in it
                os.killpg(self.process.pid, number)

    def wait(self, end: float) -> bool:
        """Return whether it ends, and what it has started too, before ``end`` of ``time.monotonic``."""
        while self.code() is None or (_GROUPED and _others_run(self.process.pid)):
            if time.monotonic() > end:
                return False
            time.sleep(_POLL)
        return True

    def drain(self, seconds: float) -> None:
        """Wait for its last words, no longer than that: what it has started may hold its streams."""
        end = time.monotonic() + seconds
        for reader in self._readers:
            reader.join(max(end - time.monotonic(), 0))


class LocalRanks:
    """Processes of this machine, and the store that is served for them.

    The first one reads the standard input of this process, the others nothing.
    """

    def __init__(self, request: LaunchRequest, show: Show) -> None:
        self._ranks: list[_Rank] = []
        self._patience = _GRACE
        """Seconds that are left to wait for last words, of all ranks together."""
        self._resources = contextlib.ExitStack()
        try:
            self._start(request, show)
        except BaseException:
            self.end()
            raise

    def _start(self, request: LaunchRequest, show: Show) -> None:
        secret = os.environ.get("TENSORBUS_STORE_SECRET") or secrets.token_hex(16)
        store = {"TENSORBUS_STORE": request.store or ""}
        if request.store is None:  # else the first rank serves it, where it needs a server
            url = self._resources.enter_context(_served_store(secret))
            store = {"TENSORBUS_STORE": url, "TENSORBUS_STORE_SERVED": "1"}
        for number in range(request.size):
            environment = {
                **_inherited(), "RANK": str(number), "LOCAL_RANK": str(number),
                "WORLD_SIZE": str(request.size), "LOCAL_WORLD_SIZE": str(request.size),
                "TENSORBUS_STORE_SECRET": secret, "PYTHONUNBUFFERED": "1", **store, **request.environment,
            }  # fmt: skip
            with _uninterrupted():  # a rank that runs is one that is told
                process = self._process(number, request, environment)
                self._ranks.append(_Rank(number, process, show))

    def _process(
        self, number: int, request: LaunchRequest, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                _following(request.command), env=environment, stdout=subprocess.PIPE,
                stdin=None if number == 0 else subprocess.DEVNULL, stderr=subprocess.PIPE,
                start_new_session=_GROUPED,
            )  # fmt: skip
        except OSError as error:
            raise DistributedError(
                f"run: rank {number} of {request.size} cannot be started: {error}. Start fewer ranks, or"
                f" see to what the system lacks."
            ) from error

    def codes(self) -> Sequence[int | None]:
        """Return the exit code of each rank, None where it runs."""
        return [rank.code() for rank in self._ranks]

    def drain(self, number: int) -> None:
        """Wait for what a rank said last."""
        self._drain(self._ranks[number])

    def _drain(self, rank: _Rank) -> None:
        start = time.monotonic()
        rank.drain(self._patience)
        self._patience = max(self._patience - (time.monotonic() - start), 0)

    def end(self) -> None:
        """End the ranks that still run: asked first, then not; at another Ctrl-C at once not.

        Where one did not end by itself and well, what ranks have started ends with them. They are asked as
        this program is: by Ctrl-C, which comes to none of them from the terminal, or else by SIGTERM.
        """
        with self._resources:
            try:
                if any(code != 0 for code in self.codes()):
                    interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
                    if interrupted:
                        self._end_all(signal.SIGINT, _INTERRUPT_GRACE)
                    else:
                        self._end_all(signal.SIGTERM, _GRACE)
            finally:
                for rank in self._ranks:
                    rank.process.wait()
            for rank in self._ranks:
                self._drain(rank)

    def _end_all(self, number: int, seconds: float) -> None:
        try:
            for rank in self._ranks:
                rank.signal(number)
            end = time.monotonic() + seconds
            for rank in self._ranks:
                rank.wait(end)
        finally:
            for rank in self._ranks:
                rank.signal(_KILL)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off Ctrl-C, and what else interrupts this program, until the block has ended."""
    came: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        heeded = [n for n in signal.valid_signals() if callable(signal.getsignal(n))]
        before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in came:
        signal.raise_signal(number)


def _inherited() -> dict[str, str]:
    """Return the variables of this process without those by which it is a rank itself.

    A rank may start ranks: MPI would take each of them for the one that it has started.
    """
    return {name: text for name, text in os.environ.items() if not name.startswith(_OWN)}


def _others_run(leader: int) -> bool:
    """Return whether a group has processes that run, besides the one that it is called after."""
    with contextlib.suppress(OSError):
        for entry in os.scandir("/proc"):
            if entry.name.isdecimal() and int(entry.name) != leader:
                with contextlib.suppress(OSError):
                    state, _, group = Path(entry.path, "stat").read_text().rpartition(")")[2].split()[:3]
                    if int(group) == leader and state != "Z":
                        return True
    return False


_FOLLOW: Final = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Asks Linux to kill this process when the one that started it is gone, and runs a command."""


def _following(command: Sequence[str]) -> Sequence[str]:
    """Return the command of a rank that does not outlive this process, however this one ends.

    Elsewhere than on Linux one outlives what kills this process without asking.
    """
    if sys.platform != "linux":
        return command
    program = shutil.which(command[0])
    if program is None:
        raise ArgumentError(f"run: there is no program {command[0]!r} to start ranks with.")
    return [sys.executable, "-I", "-S", "-c", _FOLLOW, str(os.getpid()), program, *command[1:]]


@contextlib.contextmanager
def _served_store(secret: str) -> Iterator[str]:
    """Serve a store while the block runs; yield its URL."""
    if "tcp" in plugins.store_schemes():
        before = os.environ.get("TENSORBUS_STORE_SECRET")
        os.environ["TENSORBUS_STORE_SECRET"] = secret
        try:
            served: Any = open_store("tcp://127.0.0.1:0", serve=True)
        finally:
            if before is None:
                del os.environ["TENSORBUS_STORE_SECRET"]
            else:
                os.environ["TENSORBUS_STORE_SECRET"] = before
        with contextlib.closing(served):
            yield served.url
    else:
        with tempfile.TemporaryDirectory(prefix="tensorbus-run-") as folder:
            yield (Path(folder) / "store").absolute().as_uri()
