"""A process that examines one case after another, so that what a kernel does to it ends nothing else.

It says which check of which call it is at before it begins one: where a kernel takes the process down, or
never returns, that is what the finding names, and the Python functions that it was in.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import signal
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from .examination import Options, examine, raised
from .outcome import Case, Finding, Outcome

_AT = "at"
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_FRAMES = 8
"""How many functions a finding names, the innermost first."""
PATIENCE = 0.5
"""For how many seconds to wait for what a process says before it is looked after."""
_GRACE = 5.0
"""How many seconds a process has to end after it was told to."""


class Worker:
    """A fresh interpreter (a device may not survive a fork), and the case that it is at."""

    def __init__(self, options: Options) -> None:
        self.options = options
        context = multiprocessing.get_context("spawn")
        self.connection, inner = context.Pipe()
        self._last_words, dying = context.Pipe(duplex=False)
        self._process = context.Process(target=_work, args=(inner, dying, options), daemon=True)
        self._process.start()
        inner.close()
        dying.close()
        self.case: Case | None = None
        self._check, self._call = "value", ""
        self._since = time.monotonic()

    def begin(self, case: Case) -> None:
        """Hand over a case."""
        self.case, self._check, self._call = case, "value", case.op
        self._since = time.monotonic()
        with suppress(OSError):  # a process that is gone already: ``receive`` says so
            self.connection.send(case)

    def receive(self, patience: float = PATIENCE) -> Outcome | None:
        """Return the outcome of the case; None: there is none yet.

        Waits ``patience`` seconds at most. Where the process is gone, or a check has taken longer than it may
        and the process was ended, that is the outcome.
        """
        alive = self.is_alive  # asked first: what it said before its end is there to be read
        if self.connection.poll(patience if alive else 0):
            try:
                kind, what = self.connection.recv()
            except (EOFError, OSError):
                self._end_within(_GRACE)
                return self._failed(f"the process crashed: {_end(self._process.exitcode)}{self._stack()}")
            if kind == _AT:
                self._check, self._call = what
                self._since = time.monotonic()
                return None
            self.case = None
            return Outcome.from_dict(what)
        if not alive:  # a child of its own holds the connection
            return self._failed(f"the process crashed: {_end(self._process.exitcode)}{self._stack()}")
        limit = self.options.time_limit
        if time.monotonic() - self._since <= limit:
            return None
        if os.name == "posix" and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGABRT)  # which has it show its stack
        self._end_within(_GRACE)
        return self._failed(f"it has not come back within {limit:g} s (--time-limit): ended{self._stack()}")

    def _failed(self, problem: str) -> Outcome:
        assert self.case is not None
        finding = Finding(check=self._check, call=self._call, problem=problem)
        return Outcome(case=self.case, route="missing", findings=(finding,))

    def _end_within(self, seconds: float) -> None:
        """Wait for the end of the process, then bring it about."""
        self._process.join(seconds)
        if self.is_alive:
            self._process.kill()
            self._process.join()

    def _stack(self) -> str:
        """Return where Python was as a signal ended the process; nothing where none did."""
        if os.name != "posix":
            return ""
        os.set_blocking(self._last_words.fileno(), False)  # a process of the kernel's may have its end still
        with open(self._last_words.fileno(), "rb", closefd=False) as pipe:
            threads = (pipe.read() or b"").decode(errors="replace").split("\n\n")
        thread = next((t for t in threads if t.startswith("Current thread") and _FRAME.search(t)), None)
        frames = _FRAME.findall(thread or "\n".join(threads))[:_FRAMES]
        shown = ", ".join(f"{name} ({os.path.basename(file)}:{line})" for file, line, name in frames)
        return f" in {shown}" if shown else ""

    @property
    def is_alive(self) -> bool:
        """Whether the process can take another case."""
        return self._process.is_alive()

    def stop(self) -> None:
        """End the process, whatever it is at."""
        self.connection.close()
        self._last_words.close()
        self._process.terminate()
        self._end_within(_GRACE)


def _end(code: int | None) -> str:
    if code is None or code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def _work(connection: Connection, dying: Connection, options: Options) -> None:
    """Examine what comes until nothing more does; ``dying`` takes the stack where a signal ends it."""
    if os.name == "posix":
        os.set_blocking(dying.fileno(), False)  # of many threads' stacks, what does not fit is left out
        faulthandler.enable(dying.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes the report

    place = ["value", ""]

    def at(check: str, call: str) -> None:
        place[:] = check, call
        connection.send((_AT, (check, call)))

    while True:
        try:
            case: Any = connection.recv()
        except EOFError:
            return
        place[:] = "value", case.op
        try:
            outcome = examine(case, options, at)
        except BaseException as error:  # a kernel's SystemExit too; Ctrl-C does not come here
            finding = Finding(check=place[0], call=place[1], problem=raised(error))
            outcome = Outcome(case=case, route="missing", findings=(finding,))
        connection.send(("outcome", outcome.as_dict()))


def limited(case: Case, options: Options) -> Outcome:
    """Examine a case in this process, and end it where a check takes too long, with a stack on stderr."""

    def at(check: str, call: str) -> None:
        faulthandler.dump_traceback_later(options.time_limit, exit=True, file=2)

    try:
        return examine(case, options, at)
    finally:
        faulthandler.cancel_dump_traceback_later()
