"""Reads by the host wait for the value, whatever stream makes it."""

from __future__ import annotations

import contextlib
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
        event = tb.Event(DEVICE)
        event.record()
        side.wait_event(event)
        with tb.stream(side):
            y = x @ x @ x
        assert read(y) == 90000.0


def test_streams_order_by_events() -> None:
    x = tb.ones((300, 300), device=DEVICE)
    side = tb.Stream(DEVICE)
    event = tb.Event(DEVICE)
    event.record()
    side.wait_event(event)
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


def test_streams_reuse_memory() -> None:
    x = tb.ones((1000, 1000), device=DEVICE)
    side = tb.Stream(DEVICE)
    with tb.stream(side):
        for _ in range(3):
            y = x + 1
        del y
    DEVICE.synchronize()
    for stream in (None, side):
        with tb.stream(stream) if stream else contextlib.nullcontext():
            retained = x + 1
            del retained
            before = DEVICE.memory_stats().reserved
            for _ in range(20):
                retained = x + 1
                del retained
            assert DEVICE.memory_stats().reserved == before


def test_memory_that_two_streams_use_waits_for_both() -> None:
    x = tb.ones((600, 600), device=DEVICE)
    side = tb.Stream(DEVICE)
    for _ in range(20):
        y = x @ x
        event = tb.Event(DEVICE)
        event.record()
        side.wait_event(event)
        with tb.stream(side):
            z = y @ x
        del y
        spoiled = [x * 0 for _ in range(4)]  # must not be where the other stream still reads
        assert z[599, 599].item() == 360000.0
        del spoiled, z


def test_memory_of_a_stream_that_went_away_is_used_again() -> None:
    x = tb.ones((1000, 1000), device=DEVICE)
    side = tb.Stream(DEVICE)
    with tb.stream(side):
        y = x + 1
    DEVICE.synchronize()
    retained = [x + k for k in range(30)]  # takes what the default stream has free
    del side
    gc.collect()
    del y
    before = DEVICE.memory_stats().reserved
    z = x + 1
    assert DEVICE.memory_stats().reserved < before
    assert z[0, 0].item() == 2.0
    del retained
