"""A process that examines one case after another, so that what a kernel does to it ends nothing else.

It says which check of which call it is at before it begins one: where a kernel takes the process down, that
is what the finding names, and the Python functions that it was in.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import re
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from .examination import Options, examine, raised
from .outcome import Case, Finding, Outcome

_AT = "at"
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_FRAMES = 8
"""How many functions a finding names, the innermost first."""


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

    def begin(self, case: Case) -> None:
        """Hand over a case."""
        self.case, self._check, self._call = case, "value", case.op
        with suppress(OSError):  # a process that is gone already: ``receive`` says so
            self.connection.send(case)

    def receive(self) -> Outcome | None:
        """Return the outcome of the case; None: it has only told how far it is.

        Waits for what the process says next. Where it is gone, that is the outcome.
        """
        try:
            kind, what = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            return self._crashed()
        if kind == _AT:
            self._check, self._call = what
            return None
        self.case = None
        return Outcome.from_dict(what)

    def _crashed(self) -> Outcome:
        assert self.case is not None
        problem = f"the process crashed: {_end(self._process.exitcode)}{self._stack()}"
        finding = Finding(check=self._check, call=self._call, problem=problem)
        return Outcome(case=self.case, route="missing", findings=(finding,))

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
        self._process.join()


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

    def at(check: str, call: str) -> None:
        connection.send((_AT, (check, call)))

    while True:
        try:
            case: Any = connection.recv()
        except EOFError:
            return
        try:
            outcome = examine(case, options, at)
        except Exception as error:  # not a device's fault that a check foresaw
            finding = Finding(check="value", call=case.op, problem=raised(error))
            outcome = Outcome(case=case, route="missing", findings=(finding,))
        connection.send(("outcome", outcome.as_dict()))
