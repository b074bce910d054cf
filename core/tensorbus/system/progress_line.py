"""A line on a terminal while something takes long, as compiling does: what it is, and for how long."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Final

from . import env

DELAY_SECONDS: Final = 2.0
"""How long something takes before there is a line."""
_REFRESH_SECONDS: Final = 0.5
_CLEAR: Final = "\r\x1b[2K"
_active: list[ProgressLine] = []


class ProgressLine:
    """The line of one thing; ``detail`` may be set by whoever does a part of it."""

    def __init__(self, text: str) -> None:
        self.text, self.detail = text, ""
        self._begun = perf_counter()
        self._done = threading.Event()
        self._shown = False
        self._stream = sys.stderr
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        wait = DELAY_SECONDS
        while not self._done.wait(wait):
            seconds = int(perf_counter() - self._begun)
            parts = [self.text, *([self.detail] if self.detail else []), f"{seconds} s"]
            self._write(_CLEAR + self._cut(f"tensorbus: {', '.join(parts)}"))
            self._shown, wait = True, _REFRESH_SECONDS

    def _cut(self, text: str) -> str:
        """Return a text that fits on one row of the terminal: of more, only the last would be cleared."""
        try:
            room = os.get_terminal_size(self._stream.fileno()).columns - 1
        except (OSError, ValueError, AttributeError):  # it does not say how wide it is
            return text
        return text if len(text) <= room or room < 1 else f"{text[: max(room - 3, 0)]}..."[:room]

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal that is gone
            self._stream.write(text)
            self._stream.flush()

    def start(self) -> None:
        """Begin to wait."""
        with suppress(RuntimeError):  # the interpreter is ending and starts no threads
            self._thread.start()

    def stop(self) -> None:
        """Take the line away."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._shown:
            self._write(_CLEAR)


@contextmanager
def progress_line(text: str) -> Iterator[None]:
    """Show ``text`` on standard error, where that is a terminal, once what is done meanwhile takes long.

    Within another line's there is none: that one stays.
    """
    stream = sys.stderr
    if _active or stream is None or not stream.isatty() or env.terminal() == "dumb":
        yield
        return
    line = ProgressLine(text)
    _active.append(line)
    line.start()
    try:
        yield
    finally:
        _active.remove(line)
        line.stop()


def progress_detail(text: str) -> None:
    """Say what is being done at the moment, on the line that there may be."""
    for line in _active:
        line.detail = text
