"""A compile that takes long says so on a terminal, on standard error, and nowhere else."""

from __future__ import annotations

import io
import os
import sys
import threading

import pytest
import tensorbus as tb
from tensorbus.system import progress_line as module


class Terminal(io.StringIO):
    """A stream that is a terminal, and says when something was written."""

    def __init__(self, interactive: bool) -> None:
        super().__init__()
        self.interactive, self.written = interactive, threading.Event()

    def isatty(self) -> bool:
        return self.interactive

    def write(self, text: str) -> int:
        size = super().write(text)
        self.written.set()
        return size


@pytest.mark.parametrize("interactive", [True, False])
def test_a_line_says_what_is_compiled(monkeypatch, capsys, interactive: bool) -> None:
    stream = Terminal(interactive)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(module, "DELAY_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")

    @tb.compile
    def doubled(x):
        if interactive:
            assert stream.written.wait(60)
        return x * 2

    doubled(tb.ones(3))
    text = stream.getvalue()
    assert ("tensorbus: compiling" in text and "doubled" in text) is interactive
    assert text.endswith("\r\x1b[2K") is interactive  # the line is gone again
    assert capsys.readouterr().out == ""
    assert not module._active


@pytest.mark.parametrize("columns", [200, 40, 12, 2, 0])
def test_a_line_is_cut_where_the_terminal_ends(monkeypatch, columns: int) -> None:
    stream = Terminal(True)
    stream.fileno = lambda: 7
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(module, "DELAY_SECONDS", 0.0)
    monkeypatch.setattr(module.os, "get_terminal_size", lambda number: os.terminal_size((columns, 24)))
    monkeypatch.setenv("TERM", "xterm")
    with module.progress_line("compiling a function whose name is not short"):
        assert stream.written.wait(60)
    whole = "tensorbus: compiling a function whose name is not short, 0 s"
    line = stream.getvalue().split("\r\x1b[2K")[1]
    assert line == {200: whole, 40: f"{whole[:36]}...", 12: f"{whole[:8]}...", 2: ".", 0: whole}[columns]
