"""``TENSORBUS_DUMP`` writes what became of each program, for people to look at."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorbus as tb
from tensorbus.compiler import executables


def test_every_stage_is_written_with_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORBUS_DUMP", str(tmp_path))
    monkeypatch.setenv("TENSORBUS_VERIFY", "1")
    executables.forget()
    compiled = tb.compile(lambda x: (x * 2).sum() < 7)
    assert [compiled(tb.ones(3)).item() for _ in range(3)] == [True] * 3
    (folder,) = tmp_path.iterdir()
    assert "multiply" in (folder / "graph.txt").read_text()
    page = (folder / "index.html").read_text()
    assert "compiled in" in page
    assert "fastest of 1 run(s)" in page
    assert "less" in page
    assert "<script" not in page
    executables.forget()
