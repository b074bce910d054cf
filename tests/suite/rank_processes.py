"""A process that starts two ranks which wait for ever, and what becomes of these when it ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

WAITS = """
import os, signal, sys, time
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + os.environ["RANK"], "w").write(str(os.getpid()))
time.sleep(600)
"""
"""A rank: it writes its process's number into a file, and may not end when it is asked to."""


def start_ranks(start: str, folder: Path, habit: str = "") -> subprocess.Popen[bytes]:
    """Run ``start``, which starts the command of its arguments as two ranks; return when both are there."""
    (folder / "script.py").write_text(WAITS)
    program = subprocess.Popen(
        [sys.executable, "-c", start, str(folder / "script.py"), f"{folder}/", habit],
        stderr=subprocess.DEVNULL,
    )
    while not all(file.exists() and file.read_text() for file in _files(folder)):
        assert program.poll() is None
        time.sleep(0.01)
    return program


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
