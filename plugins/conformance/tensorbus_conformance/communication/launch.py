"""Starts the ranks of a launch: as threads here, or as processes by a command."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Final

from tensorbus import distributed as dist
from tensorbus import plugins
from tensorbus.backend_api import Rendezvous

from ..outcome import Finding
from .faults import RankEndedError, judge
from .progress import MARK, stuck
from .rank import on_thread
from .setting import Report, Setting

LOCAL: Final = f"{shlex.quote(sys.executable)} -m tensorbus_conformance.communication --ranks {{ranks}}"
"""How processes are started where nothing else is said."""
_LIMIT: Final = 600.0
_GLANCE: Final = 0.2
"""Seconds between two looks at ranks that are threads."""
_SHOWN: Final = 12_000
"""Characters of it that a finding has."""
_LINES: Final = 200
"""How many lines of what ranks say are kept."""


def connects_threads(communicator: str, device: str) -> bool:
    """Return whether its ranks are threads, so that no command is needed.

    Raises ``ValueError`` for no communicator.
    """
    offered = plugins.communicators()
    if communicator not in offered:
        raise ValueError(
            f"no communicator is called {communicator!r}; installed: {', '.join(offered) or 'none'}."
        )
    meeting = Rendezvous("kit", (0, 1), 0, dist.MemoryStore(), 1.0, threads=True)
    return offered[communicator].verdict(device, meeting) is True


def launch(setting: Setting, command: str = "") -> tuple[list[Report | None], list[Finding]]:
    """Run the setting's program on its ranks; return each rank's report, and what the launch itself shows."""
    if setting.threads:
        reports: list[Report | None] = [None] * setting.ranks
        findings = _on_threads(setting, reports)
    else:
        reports, findings = _as_processes(setting, command or LOCAL)
    return reports, findings or judge(setting, reports, ended=not setting.threads)


def _on_threads(setting: Setting, reports: list[Report | None]) -> list[Finding]:
    """Run them, until all are done or one is stuck: that, nobody can end."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            dist.run_ranks(
                on_thread, setting.ranks, setting, reports, timeout=setting.timeout,
                prefer=setting.communicator,
            )  # fmt: skip
        except BaseException as error:  # told of below
            failures.append(error)

    running = threading.Thread(target=copy_context().run, args=(run,), name="tensorbus-kit", daemon=True)
    running.start()
    while running.is_alive():
        running.join(_GLANCE)
        if where := stuck(setting):
            return [_finding(setting, where)]
    if not failures or isinstance(failures[0], RankEndedError):
        return []
    note = " ".join(getattr(failures[0], "__notes__", ()))
    return [_finding(setting, f"{type(failures[0]).__name__}: {failures[0]} ({note})")]


def _as_processes(setting: Setting, command: str) -> tuple[list[Report | None], list[Finding]]:
    with tempfile.TemporaryDirectory(prefix="tensorbus-ranks-") as name:
        folder = Path(name)
        setting.write(folder)
        words = [word.format(ranks=setting.ranks) for word in shlex.split(command)]
        rank = [sys.executable, "-m", "tensorbus_conformance.communication", name]
        process = subprocess.Popen(
            [*words, *rank], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
        findings: list[Finding] = []
        lines: deque[str] = deque(maxlen=_LINES)
        reader = threading.Thread(target=_follow, args=(process, lines), daemon=True)
        reader.start()
        try:
            process.wait(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            findings.append(_finding(setting, f"its ranks still ran after {_LIMIT:g} seconds"))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reader.join(10)
        output = "".join(lines)
        paths = [folder / f"rank{rank}.json" for rank in range(setting.ranks)]
        reports = [Report.read(path) if path.exists() else None for path in paths]
        if process.returncode and setting.program not in ("dies", "killed") and not findings:
            findings.append(
                _finding(
                    setting,
                    f"{' '.join(words)} ended with exit code {process.returncode}:\n{output[-_SHOWN:]}",
                )
            )
        return reports, findings


def _follow(process: subprocess.Popen[str], lines: deque[str]) -> None:
    """Show where the ranks are, and keep what else they say."""
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            if MARK in line:
                sys.stderr.write(line)
                sys.stderr.flush()
            else:
                lines.append(line)


def _finding(setting: Setting, problem: str) -> Finding:
    return Finding(check="launch", call=str(setting), problem=problem)


def disagreements(setting: Setting, reports: list[Report | None]) -> list[Finding]:
    """Return what was to be the same bits on all ranks of a group, and was not."""
    first: dict[str, tuple[int, str]] = {}
    findings = []
    for rank, report in enumerate(reports):
        for call, digest in (report.digests if report else {}).items():
            other, known = first.setdefault(call, (rank, digest))
            if known != digest:
                problem = f"rank {rank} has other bits than rank {other}"
                findings.append(Finding(check="agreement", call=call, problem=problem))
    return findings
