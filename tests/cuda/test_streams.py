"""Streams, events, their times, and what memory is in use, on a GPU."""

from __future__ import annotations

import gc
import threading

import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]
UNIT = tb.Device("cuda")


def test_a_new_stream_begins_behind_what_is_queued() -> None:
    with UNIT:
        x = tb.full((4096, 4096), 1.0 / 4096)
        for _ in range(5):
            y = x
            for _ in range(20):
                y = y @ x
            with tb.stream() as side:
                z = y * 4096
            assert side.device == UNIT
            side.record_event().wait()
            assert float((z - 1).abs().max().item()) < 1e-3


def test_streams_nest_and_are_left_by_errors() -> None:
    unit = cuda.runtime().units[0]
    before = unit.stream()
    outer, inner = tb.Stream(UNIT), tb.Stream(UNIT)

    def fail() -> None:
        with tb.stream(inner):
            assert unit.stream() is inner.handle
            raise KeyError

    with tb.stream(outer):
        assert unit.stream() is outer.handle
        with pytest.raises(KeyError):
            fail()
        assert unit.stream() is outer.handle
    assert unit.stream() is before


def test_each_thread_has_a_stream_of_its_own() -> None:
    unit = cuda.runtime().units[0]
    side, seen = tb.Stream(UNIT), []
    with tb.stream(side):
        thread = threading.Thread(target=lambda: seen.append(unit.stream()))
        thread.start()
        thread.join()
        assert unit.stream() is side.handle
    assert seen == [unit.default]


def test_events_tell_when_they_are_reached_and_how_long_it_took() -> None:
    x = tb.full((4096, 4096), 1.0 / 4096, device=UNIT, dtype=tb.float64)
    (x @ x).tolist()
    times = []
    for count in (1, 40):
        start, end = tb.Event(UNIT), tb.Event(UNIT)
        start.record()
        y = x
        for _ in range(count):
            y = y @ x
        end.record()
        if count > 1:
            assert not end.is_done()
        end.synchronize()
        assert start.is_done()
        assert end.is_done()
        times.append(start.elapsed_time(end))
    assert times[1] > times[0] > 0


def test_an_event_that_was_not_recorded_is_named() -> None:
    with pytest.raises(tb.DeviceError, match="was not recorded"):
        tb.Event(UNIT).synchronize()


def test_statistics_have_a_peak_that_is_set_back() -> None:
    gc.collect()
    UNIT.reset_peak_memory_stats()
    before = UNIT.memory_stats()
    assert before.peak == before.allocated
    assert before.scope == "device"
    x = tb.ones((1 << 22,), device=UNIT)
    y = x + 1
    del x
    gc.collect()
    now = UNIT.memory_stats()
    assert now.peak >= before.allocated + (32 << 20)
    assert before.allocated + (16 << 20) <= now.allocated < now.peak
    assert now.total is not None
    assert now.total > now.peak
    tb.empty_cache(UNIT)
    assert UNIT.memory_stats().reserved <= now.reserved
    assert float(y.sum().item()) == 2.0 * (1 << 22)
