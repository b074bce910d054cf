"""Shows where the kit is, and ends a rank that is stuck: with what each of its threads does."""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tensorbus import distributed as dist

from .setting import Report, Setting

MARK: Final = "kit: "
"""What the lines begin with that whoever started the ranks shows at once."""
_GRACE: Final = 5.0
"""Seconds in which the other ranks show what they do, before the first one ends."""
_FRAMES: Final = 8
"""Of how many calls is shown where a thread is stuck."""
_start: Final = time.monotonic()
_cells: Final[dict[int, tuple[Setting, str, float]]] = {}
"""What ranks that are threads run, of which launch, and since when: by the number of the thread."""


@contextmanager
def cell(setting: Setting, report: Report, name: str) -> Iterator[None]:
    """Say how long the calls in the block take, on one rank of those that are processes.

    A process that takes more than ``setting.cell_seconds`` shows what its threads do, and ends; of threads
    ``stuck`` tells.
    """
    if setting.threads:
        here = threading.get_ident()
        _cells[here] = setting, name, time.monotonic()
        try:
            with _named(name):
                yield
        finally:
            del _cells[here]
        return
    begun, calls = time.monotonic(), report.calls
    faulthandler.dump_traceback_later(setting.cell_seconds)
    signal.setitimer(signal.ITIMER_REAL, setting.cell_seconds + _GRACE)  # a call may hold Python's lock
    try:
        with _named(name):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
    if dist.get_rank() == 0:
        _show(f"{name}: {report.calls - calls} calls in {time.monotonic() - begun:.2f} s")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say of what ends the calls in the block which they are."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in {name}")
        raise


def stuck(setting: Setting) -> str:
    """Return what ranks that are threads have been at for longer than they may, and where; "" for nothing.

    Those of a launch before, which nobody can end, do not count.
    """
    now, frames = time.monotonic(), sys._current_frames()
    lines = []
    for thread, (launch, name, begun) in list(_cells.items()):
        if launch is setting and now - begun > setting.cell_seconds and thread in frames:
            where = "".join(traceback.format_stack(frames[thread])[-_FRAMES:])
            lines.append(f"{name} took more than {setting.cell_seconds:g} seconds:\n{where}")
    return "\n".join(lines)


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
