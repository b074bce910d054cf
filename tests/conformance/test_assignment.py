"""Assignment from many threads: each changes its own part of one tensor, and none of it is lost."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tensorbus as tb
from tensorbus.ops.definition import table


def test_what_is_assigned_during_an_assignment_is_kept(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = tb.zeros((3,), device=device)
    results: list[Any] = []
    run = table.run

    def interrupted(*what: Any) -> Any:
        out = run(*what)
        if not results:  # here another thread gets its turn
            results.append(out)
            x[2] = 7.0
        return out

    monkeypatch.setattr(table, "run", interrupted)
    shown = x.detach()  # so that a new value is made
    x[0] = 5.0
    assert x.tolist() == [5.0, 0.0, 7.0]
    assert shown.tolist() == [5.0, 0.0, 7.0]


def test_an_assignment_that_fails_changes_nothing(device: str) -> None:
    x = tb.zeros((3,), device=device)
    with pytest.raises(tb.ShapeError):
        x[:2] = tb.ones((3,), device=device)
    x[0] = 1.0
    assert x.tolist() == [1.0, 0.0, 0.0]


@pytest.fixture
def _hasty() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_hasty")
def test_threads_fill_the_rows_of_one_tensor(device: str) -> None:
    rows = 8
    for _ in range(20):
        x = tb.zeros((rows, 4), device=device)
        gate = threading.Barrier(rows)

        def put(k: int, x: tb.Tensor = x, gate: threading.Barrier = gate) -> None:
            value = tb.full((4,), float(k + 1), device=device)
            gate.wait()
            x[k, :] = value

        threads = [threading.Thread(target=put, args=(k,)) for k in range(rows)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert x[:, 0].tolist() == [float(k + 1) for k in range(rows)]
