"""Measurements in processes of their own, with a limit: one that hangs costs a cell and not the run.

A module that is measured so prints figures as lines of JSON, each as soon as it is known (``report``), and is
run by ``measured``. Limits are of the processor, so that a machine that others use stops nothing early, or of
the wall, where a device computes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TextIO

ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TENSORBUS_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"), "1"
)
"""An environment in which libraries compute, and compile, with one thread."""


def report(figures: dict[str, Any]) -> None:
    """Print figures, which add to those before and replace them."""
    print(json.dumps(figures), flush=True)


def measured(
    module: str, *args: str, limit: float, wall: float | None = None,
    show: Callable[[str], None] = lambda line: None, environment: Mapping[str, str] = ONE_THREAD,
) -> dict[str, Any]:  # fmt: skip
    """Run ``python -m MODULE ARGS`` and return its figures; ``show`` is told of lines that are none.

    ``environment`` is added to that of this process. It may take ``limit`` seconds of the processor from one
    line to the next, and ``wall`` of the wall in all (``None``: any). Of a process that is stopped, or fails,
    the figures are those that it reported before, and ``stopped`` says why there are no more.
    """
    figures: dict[str, Any] = {}
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *args], env={**os.environ, **environment},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
            start_new_session=True,
        )  # fmt: skip
        watch = _Watch(process, limit, wall)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                watch.restart()
                try:
                    figures |= json.loads(line)
                except (ValueError, TypeError):  # what a library prints
                    show(line.rstrip())
            process.wait()
        finally:
            watch.end()
        stopped = watch.stopped or _failure(process.returncode, errors)
    return figures | ({"stopped": stopped} if stopped else {})


class _Watch(threading.Thread):
    """Ends a process, and all that it started, once it has taken too long: ``stopped`` says so.

    A limit that the system keeps (``RLIMIT_CPU``) would make the process's own clock as coarse as its ticks.
    """

    def __init__(self, process: subprocess.Popen[str], limit: float, wall: float | None) -> None:
        super().__init__(daemon=True)
        self.stopped = ""
        self._process, self._limit, self._wall = process, limit, wall
        self._began, self._since = time.monotonic(), 0.0
        self._is_over = threading.Event()
        self.start()

    def restart(self) -> None:
        """Count seconds of the processor from now."""
        self._since = _processor_seconds(self._process.pid)

    def run(self) -> None:
        while not self._is_over.wait(0.5):
            if self._wall is not None and time.monotonic() - self._began > self._wall:
                self.stopped = f"over {self._wall:g} s of the wall"
            elif _processor_seconds(self._process.pid) - self._since > self._limit:
                self.stopped = f"over {self._limit:g} s of the processor"
            if self.stopped:
                self._kill()
                return

    def end(self) -> None:
        """Stop watching; end what is left of the process."""
        self._is_over.set()
        self.join()
        self._kill()
        self._process.wait()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _processor_seconds(pid: int) -> float:
    """Return what a process and those that it waited for took; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / float(os.sysconf("SC_CLK_TCK"))


def _failure(code: int, errors: TextIO) -> str:
    if code == 0:
        return ""
    errors.seek(0)
    last = [line.strip() for line in errors if line.strip()]
    return (last[-1] if last else f"ended with {code}")[:200]
