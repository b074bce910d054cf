"""A process that starts two ranks which wait for ever, and what becomes of these when it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

WAITS = """
import os, signal, sys, time
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + os.environ["RANK"], "w").write(str(os.getpid()))
time.sleep(600)
"""
"""A rank: it writes its process's number into a file, and may not end when it is asked to."""
HEEDS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
"""What a process begins with that is sent signals: a shell's background job and nohup let it ignore some."""
RUN = """
from tensorbus.distributed.launch import launcher
launcher.run([sys.executable, *sys.argv[1:]], 2)
"""
"""Starts the ranks as ``tensorbus run`` does."""


@contextlib.contextmanager
def start_ranks(start: str, folder: Path, habit: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run ``start``, which starts the command of its arguments as two ranks; yield it when both are there.

    Its error stream is in the file ``errors``.
    """
    (folder / "script.py").write_text(WAITS)
    with (folder / "errors").open("wb") as errors:
        program = subprocess.Popen(
            [sys.executable, "-c", HEEDS + start, str(folder / "script.py"), f"{folder}/", habit],
            stderr=errors,
        )
    try:
        code = program.poll()
        while not all(file.exists() and file.read_text() for file in _files(folder)):
            assert code is None
            time.sleep(0.01)
            code = program.poll()
        yield program
    finally:
        program.kill()
        program.wait()


def wait_for_ranks(folder: Path) -> None:
    """Return when no rank runs."""
    for file in _files(folder):
        while is_running(int(file.read_text())):
            time.sleep(0.01)


def is_running(number: int) -> bool:
    """Return whether a process runs: one that has ended may wait for whoever inherits it."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{number}/status")
    return not (status.exists() and "State:\tZ" in status.read_text())


def _files(folder: Path) -> list[Path]:
    return [folder / "0", folder / "1"]
