"""Processes in which the command line opens plugins, one each: what one does to its process hurts no other.

A process writes a line of JSON before and after all code of a plugin, and one with its report. One that dies,
or says nothing for too long, is described by the last of these lines.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any, Final

from ..system import env

_CHILD: Final = (
    "import json, sys; task = json.loads(sys.stdin.readline()); sys.path[:] = task.pop('path');"
    " from tensorbus.cli.plugin_report import main; main(**task)"
)
_MARGIN_SECONDS: Final = 20.0
"""What a process may need beyond the time limit of probes before it says something: it starts as well."""
_END_SECONDS: Final = 5.0
"""How long a process may take to end after its report; how it ends does not matter then."""
_PROCESSES: Final = min(os.cpu_count() or 1, 7) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The subject of a report: a device or a plugin of another kind by its name, or ``"ops"`` of all plugins.

    ``thorough``: with what the doctor wants to know.
    """

    kind: str
    name: str = ""
    thorough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The report of a process; or None, and what ended it, with what it wrote to its error stream."""

    report: Mapping[str, Any] | None
    death: str = ""
    errors: str = ""


@dataclass(slots=True)
class _Progress:
    """The output of a process so far."""

    report: Mapping[str, Any] | None = None
    running: list[list[str]] = field(default_factory=list)
    seconds: float = field(default_factory=env.probe_timeout)

    def take(self, message: Mapping[str, Any]) -> float:
        """Take a message; return how many seconds the next may take."""
        if "report" in message:
            self.report = message["report"]
            return _END_SECONDS
        if "begins" in message:
            self.running.append(message["begins"])
        elif "ended" in message:
            self.running.remove(message["ended"])
        self.seconds = float(message.get("seconds", self.seconds))
        return self.seconds + _MARGIN_SECONDS

    def where(self) -> str:
        """Return what ran last, as the beginning of a sentence."""
        return "{0[1]} ({0[0]})".format(self.running[-1]) if self.running else "examining it"


def run_tasks(tasks: Sequence[Task], blocked: Iterable[str] = ()) -> list[Outcome]:
    """Return the outcomes of tasks, each in a process of its own, several at a time.

    ``blocked`` are plugins that the processes leave out, beside those that ``TENSORBUS_BLOCK`` names.
    """
    if not tasks:
        return []
    left_out = ",".join(sorted({*blocked, *env.blocked()}))
    environment = {**os.environ, **({"TENSORBUS_BLOCK": left_out} if left_out else {})}
    with ThreadPoolExecutor(min(len(tasks), _PROCESSES)) as pool:
        return list(pool.map(lambda task: _run(task, environment), tasks))


def _run(task: Task, environment: Mapping[str, str]) -> Outcome:
    order = {"path": sys.path, "kind": task.kind, "name": task.name, "thorough": task.thorough}
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            [sys.executable, "-c", _CHILD], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors, text=True, errors="replace",
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(json.dumps(order) + "\n")
                process.stdin.close()
            except OSError:  # it has died already
                pass
            progress = _Progress()
            hung = _follow(process.stdout, progress)
            if hung is not None or progress.report is not None:
                _end(process)
        if progress.report is not None:
            return Outcome(report=progress.report)
        death = f"no answer within {hung:g} s" if hung is not None else _how_it_ended(process.returncode)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    return Outcome(report=None, death=f"{progress.where()} failed: {death}", errors=text)


def _follow(stream: IO[str], progress: _Progress) -> float | None:
    """Take what a process says until it ends; return the seconds without a word that ended its time."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    seconds = env.probe_timeout() + _MARGIN_SECONDS
    while True:
        try:
            line = lines.get(timeout=seconds)
        except queue.Empty:
            return seconds
        if line is None:
            return None
        try:
            seconds = progress.take(json.loads(line))
        except (ValueError, TypeError, AttributeError):  # not ours: a plugin wrote to the descriptor itself
            continue


def _end(process: subprocess.Popen[str]) -> None:
    """Wait for a process to end, not for long."""
    try:
        process.wait(_END_SECONDS if process.poll() is None else 0)
    except subprocess.TimeoutExpired:
        process.kill()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it ended its process with exit code {code}"
    try:
        number = signal.Signals(-code)
        return f"its process was ended by {number.name} ({signal.strsignal(number)})"
    except ValueError:
        return f"its process was ended by signal {-code}"


class Messages:
    """The side of the process: writes the lines. What plugins print goes to the error stream."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def on_plugin_code(self, owner: str, request: str, begins: bool) -> None:
        """Say that code of a plugin begins, or has ended."""
        self.send({"begins" if begins else "ended": [owner, request]})

    def allow(self, seconds: float) -> None:
        """Say that each of the next steps may take so long."""
        self.send({"seconds": seconds})

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a line, at once."""
        with self._lock:
            self._stream.write(json.dumps(message) + "\n")
            self._stream.flush()
