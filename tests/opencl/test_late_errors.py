"""Numbers read on a device that queues its work: errors of that work surface where eager mode has them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb

OPENCL = tb.Device("opencl", 0)
INDICES = [[0, 1], [1, 2], [2, 0], [0, 9], [2, 2], [9, 0], [1, 1]]
Log = list[Any]
Step = Callable[[Any, Any], Any]


def table() -> Any:
    return tb.asarray([5.0, 6.0, 7.0], device=OPENCL)


def before_the_read(log: Log) -> tuple[Step, Step]:
    rows = table()
    return _shown_step(log, lambda loss, at: tb.take(rows, at).sum().item()), lambda x, indices: None


def before_the_call(log: Log) -> tuple[Step, Step]:
    rows = table()
    return _shown_step(log, lambda loss, at: float(loss)), lambda x, indices: tb.take(rows, indices)


def _shown_step(log: Log, read: Step) -> Step:
    p = tb.nn.Parameter(tb.ones((2,), device=OPENCL))
    optimizer = tb.optim.SGD([p], lr=0.125)

    def fn(x, indices):
        optimizer.zero_grad()
        loss = (p * x).sum()
        value = read(loss, indices)
        loss.backward()
        optimizer.step()
        log.append("stepped")
        return value, p.detach()

    return fn


def behind_the_read(log: Log) -> tuple[Step, Step]:
    rows = table()

    def fn(x, indices):
        value = x.sum().item()
        y = tb.take(rows, indices) * 2
        log.append("behind")
        log.append(value)
        return y

    return fn, lambda x, indices: None


def in_a_training_step(log: Log) -> tuple[Step, Step]:
    rows = tb.nn.Parameter(table())
    optimizer = tb.optim.SGD([rows], lr=0.125)

    def fn(x, indices):
        optimizer.zero_grad()
        loss = (tb.take(rows, indices) * x).sum()
        value = loss.item()
        log.append("behind")
        loss.backward()
        optimizer.step()
        log.append(value)
        return value, rows.detach()

    return fn, lambda x, indices: None


@pytest.mark.parametrize("case", [before_the_read, before_the_call, behind_the_read, in_a_training_step])
def test_errors_of_queued_work_are_raised_at_the_line_of_a_read(case: Any) -> None:
    runs = []
    for is_compiled in (False, True):
        log: Log = []
        fn, ahead = case(log)
        fn = tb.compile(fn) if is_compiled else fn
        runs.append(([_outcome(fn, ahead, indices) for indices in INDICES], log))
    (wanted, shown), (got, noted) = runs
    assert any(kind is tb.IndexingError for kind, *_ in wanted)
    assert got == wanted
    assert noted == shown
    assert fn.segments, fn.reasons


def _outcome(fn: Step, ahead: Step, indices: list[int]) -> Any:
    x = tb.asarray([0.5, 0.25], device=OPENCL)
    at = tb.asarray(indices, device=OPENCL)
    try:
        ahead(x, at)
        result = fn(x, at)
        parts = result if isinstance(result, tuple) else (result,)
        return tuple, [part.tolist() if isinstance(part, tb.Tensor) else part for part in parts]
    except tb.IndexingError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return type(error), str(error), [f.lineno for f in frames if f.filename == __file__][-1]
