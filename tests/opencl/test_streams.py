"""Reads by the host wait for the value, whatever stream makes it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb

DEVICE = tb.Device("opencl")
READS: dict[str, Callable[[tb.Tensor], Any]] = {
    "item": lambda x: x[0, 0].item(),
    "numpy": lambda x: float(x.numpy()[0, 0]),
    "another device": lambda x: x.to("cpu")[0, 0].item(),
    "synchronize": lambda x: (DEVICE.synchronize(), x.tolist()[0][0])[1],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_waits_for_a_side_stream(read: Callable[[tb.Tensor], Any]) -> None:
    x = tb.ones((300, 300), device=DEVICE)
    side = tb.Stream(DEVICE)
    for _ in range(3):
        made = tb.Event(DEVICE)
        made.record()
        side.wait_event(made)
        with tb.stream(side):
            y = x @ x @ x
        assert read(y) == 90000.0


def test_streams_order_by_events() -> None:
    x = tb.ones((300, 300), device=DEVICE)
    side = tb.Stream(DEVICE)
    made = tb.Event(DEVICE)
    made.record()
    side.wait_event(made)
    with tb.stream(side):
        y = x @ x
    side.record_event().wait()
    assert (y + 1)[299, 299].item() == 301.0


def test_a_stream_that_goes_away_finishes_first() -> None:
    x = tb.ones((300, 300), device=DEVICE)
    DEVICE.synchronize()
    side = tb.Stream(DEVICE)
    with tb.stream(side):
        y = x @ x
    del side
    gc.collect()
    assert y[0, 0].item() == 300.0
