"""Shows where the kit is, and ends a rank that is stuck: with what each of its threads does."""

from __future__ import annotations

import faulthandler
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tensorbus import distributed as dist

from .setting import Report, Setting

MARK: Final = "kit: "
"""What the lines begin with that whoever started the ranks shows at once."""
_GRACE: Final = 5.0
"""Seconds in which the other ranks show what they do, before the first one ends."""
_start: Final = time.monotonic()


@contextmanager
def cell(setting: Setting, report: Report, name: str) -> Iterator[None]:
    """Say how long the calls in the block take, on one rank of those that are processes.

    A process that takes more than ``setting.cell_seconds`` shows what its threads do, and ends.
    """
    if setting.threads:
        yield
        return
    begun, calls = time.monotonic(), report.calls
    faulthandler.dump_traceback_later(setting.cell_seconds)
    signal.setitimer(signal.ITIMER_REAL, setting.cell_seconds + _GRACE)  # a call may hold Python's lock
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
    if dist.get_rank() == 0:
        _show(f"{name}: {report.calls - calls} calls in {time.monotonic() - begun:.2f} s")


@contextmanager
def shown(setting: Setting, step: str) -> Iterator[None]:
    """Say how long a step of a fault takes, on each rank that is a process: some wait where others do not."""
    begun = time.monotonic()
    try:
        yield
    finally:
        if not setting.threads:
            _show(f"rank {dist.get_rank()}, {step}: {time.monotonic() - begun:.2f} s")


def _show(text: str) -> None:
    print(f"{MARK}{time.monotonic() - _start:.1f} s, {text}", file=sys.stderr, flush=True)
