"""``TENSORBUS_DUMP`` writes every stage of each program, for people to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.compiler.programs import program_cache as executables

from error_bounds import assert_alike


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TENSORBUS_DUMP", str(tmp_path))
    monkeypatch.setenv("TENSORBUS_VERIFY", "1")
    executables.clear()
    yield
    executables.clear()


class Balanced(HTMLParser):
    """Reads a page whose elements are closed in order; keeps ids and links."""

    VOID = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        operand = dict(attrs)
        self.ids += [operand["id"] or ""] if "id" in operand else []
        self.links += [operand["href"] or ""] if "href" in operand else []
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def dumped(folder: Path, device: str) -> tuple[str, Path]:
    """Return the page of a program that ran on a device, and its folder."""
    compiled = tb.compile(lambda x: (tb.softmax(x * 2, axis=-1), tb.cumulative_sum(x, axis=0) < 7))
    x = tb.ones((40, 50), device=device)
    for _ in range(12):
        first, _ = compiled(x)
    assert_alike(first.sum().item(), 40.0, roundings=50 + 40)  # sums of rows and of columns
    (path,) = folder.iterdir()
    return (path / "index.html").read_text(), path


def test_every_stage_is_written_with_a_page(device: str, tmp_path: Path) -> None:
    page, folder = dumped(tmp_path, device)
    assert "multiply" in (folder / "graph.txt").read_text()
    assert "softmax" in (folder / "captured.txt").read_text()
    if device != "refdev":  # which has no lowering
        assert (folder / "passes.txt").read_text().startswith("after decompose:\n%0")
    for text in ("compiled in", "fastest of 10 run(s)", "less", "all groups, one by one"):
        assert text in page
    assert "<script" not in page
    assert "us  0 " in (folder / "times.txt").read_text()


def test_groups_stand_beside_their_times_and_lead_to_their_code(device: str, tmp_path: Path) -> None:
    page, _ = dumped(tmp_path, device)
    read = Balanced(page)
    assert len(set(read.ids)) == len(read.ids)
    assert {link.removeprefix("#") for link in read.links} <= set(read.ids)
    columns = re.findall(r"<section><h2>(.*?)</h2>", page)
    whole = ["captured", "graph", "groups and times", "schedules", "loops", "code"]
    compiled = device != "refdev" and tb.device(device).properties.extra.get("compiler", "") is not None
    assert columns == (whole if compiled else ["graph", "groups and times"])
    groups = re.findall(r'<article id="group\d+">(.*?)</article>', page, re.DOTALL)
    assert len(groups) >= 2
    for group in groups:
        assert re.search(r'class="time">[\d.]+ us<', group)
        assert 'class="ops"' in group
        assert ('href="#code' in group) == compiled


def test_a_dump_does_not_change_results(tmp_path: Path) -> None:
    w = tb.zeros((30,))

    @tb.compile
    def step(g: Any) -> Any:
        w[...] = w * 0.5 + g
        return w.sum()

    totals = [step(tb.ones((30,))).item() for _ in range(12)]
    right, expected = 0.0, []
    for _ in range(12):
        right = right * 0.5 + 1
        expected.append(30 * right)
    assert totals == expected  # sums of fractions of two to the twelfth


def test_a_folder_that_cannot_be_made_is_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a file"
    place.write_text("in the way")
    monkeypatch.setenv("TENSORBUS_DUMP", str(place / "inside"))
    executables.clear()
    with pytest.warns(RuntimeWarning, match="TENSORBUS_DUMP=.*the program goes on"):
        assert tb.compile(lambda x: x * 2 + 0.125)(tb.ones(2)).tolist() == [2.125] * 2
    assert tb.compile(lambda x: x * 3 + 0.125)(tb.ones(2)).tolist() == [3.125] * 2


def test_programs_between_graph_breaks_are_written_at_the_first_call(tmp_path: Path) -> None:
    @tb.compile
    def fn(x):
        y = tb.sin(x) + 1
        if y.sum() > 0:
            y = tb.exp(y) * 2
        return y

    fn(tb.ones(3))
    graphs = [(path / "graph.txt").read_text() for path in sorted(tmp_path.iterdir())]
    assert len(graphs) == 2
    assert "sin" in graphs[0]
    assert "exp" in graphs[1]
