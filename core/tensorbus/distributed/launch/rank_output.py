"""Lines of ranks: shown with their numbers, kept in files, and the last ones of each error stream."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from ...errors import DistributedError

_TAIL: Final = 40
"""How many of the last lines of a rank's error stream are kept."""


class RankOutput:
    """Takes lines of ``size`` ranks from any thread, and writes each whole. A stream that is None has none.

    In ``folder``, where there is one, ``rank-0.out`` and ``rank-0.err`` have what rank 0 said, as it said it.

    What cannot be written is the launcher's problem, not the rank's: ``check`` raises it.
    """

    def __init__(self, size: int, out: TextIO | None, err: TextIO | None, folder: Path | None = None) -> None:
        self._size, self._width = size, len(str(size - 1))
        self._out, self._err = out, err
        self._lock = threading.Lock()
        self._problem: OSError | ValueError | None = None
        self._is_over = False
        self._folder, self._files = folder, dict[tuple[int, bool], TextIO]()
        self.last_lines: list[deque[str]] = [deque(maxlen=_TAIL) for _ in range(size)]

    def show(self, number: int, line: str, wrong: bool) -> None:
        """Write a line of a rank; ``wrong`` says that it is of its error stream."""
        if self._folder is not None:
            self._write(self._file(self._folder, number, wrong), line)
        if self._size > 1:
            if line == "\r":  # what a progress bar begins with
                return
            line = line.rstrip("\r\n") + "\n"  # another rank's line may be next
        if wrong:
            if self._is_over:
                return
            self.last_lines[number].append(line)
        text = line if self._size == 1 else f"[{number:{self._width}}] {line}"
        self._write(self._err if wrong else self._out, text)

    def say(self, text: str) -> None:
        """Write a line of the launcher's own."""
        self._write(self._err, text + "\n")

    def end_errors(self) -> None:
        """Show no more of error streams: ranks that are ended say so, whoever else was the cause."""
        self._is_over = True

    def check(self) -> None:
        """Raise ``DistributedError`` where something could not be written."""
        if self._problem is not None:
            raise DistributedError(
                f"what the ranks say cannot be written: {self._problem}. The ranks were ended; let what reads"
                f" the output read all of it, or send it to a file with room."
            ) from self._problem

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            for file in self._files.values():
                with suppress(OSError):  # which a line has told of
                    file.close()

    def _file(self, folder: Path, number: int, wrong: bool) -> TextIO | None:
        with self._lock:
            file = self._files.get((number, wrong))
            if file is None:
                try:
                    path = folder / f"rank-{number}.{'err' if wrong else 'out'}"
                    file = path.open("w", encoding="utf-8", errors="backslashreplace", newline="")
                except OSError as error:
                    self._problem = error
                    return None
                self._files[number, wrong] = file
            return file

    def _write(self, stream: TextIO | None, text: str) -> None:
        if stream is None or self._problem is not None:
            return
        with self._lock:
            try:
                try:
                    stream.write(text)
                except UnicodeEncodeError:  # the terminal's encoding has no such letter
                    encoding = stream.encoding
                    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
                stream.flush()
            except (OSError, ValueError) as error:  # nobody reads it, the disk is full, it was closed
                self._problem = error
                _give_up(stream)


def _give_up(stream: TextIO) -> None:
    """Let what the stream still holds go nowhere: Python writes it at the end, and would fail again."""
    with suppress(OSError, ValueError):  # it has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
