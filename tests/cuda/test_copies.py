"""Copies between the host and a GPU that nobody waits for, and between two GPUs."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cuda import device as cuda

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda.why_unavailable() is not None, reason=f"cuda: {cuda.why_unavailable()}"),
]


def cards() -> int:
    """Return how many GPUs there are."""
    return 0 if cuda.why_unavailable() is not None else cuda.runtime().device_count()


def busy(unit: tb.Device) -> tb.Tensor:
    """Queue work that takes a GPU a good part of a second; return what it gives, ones."""
    n = 8192
    x = tb.full((n, n), 1.0 / n, device=unit, dtype=tb.float64)
    y = x
    for _ in range(12):
        y = y @ x
    return y * n


def test_copies_are_queued_behind_work_and_not_waited_for() -> None:
    unit = tb.Device("cuda")
    host = tb.arange(1 << 20, dtype=tb.float32, device="cpu").pin_memory(unit)
    assert host.is_pinned()
    for _ in range(2):  # the second time, memory and kernels are there: getting them may wait for the GPU
        unit.synchronize()
        ones = busy(unit)
        there = host.to(unit, non_blocking=True)
        back = (there + ones[0, 0].to(tb.float32)).to("cpu", non_blocking=True)
        behind = tb.Event(unit)
        behind.record()
        under_way = not behind.is_done()
        back.tolist()
    assert under_way
    np.testing.assert_array_equal(back.numpy(), np.arange(1 << 20, dtype="f4") + 1)
    assert behind.is_done()
    assert back.is_pinned(unit)


@pytest.mark.parametrize("index", range(max(cards(), 1)))
def test_few_numbers_are_queued_and_there_for_all_streams(index: int) -> None:
    unit = tb.Device("cuda", index)
    other = tb.Stream(unit)
    for _ in range(2):
        unit.synchronize()
        ones = busy(unit)
        numbers = np.arange(8, dtype="f4")
        there = tb.asarray(numbers, device=unit, copy=True)
        dropped = tb.nn.functional.dropout(there + 1, 0.5)
        behind = tb.Event(unit)
        behind.record()
        under_way = not behind.is_done()
        numbers[:] = 7  # they have been read
        with tb.stream(other):
            result = there * 2
        assert result.tolist() == list(range(0, 16, 2))
    assert under_way
    assert dropped.shape == (8,)
    assert ones[0, 0].item() == 1


def test_a_read_of_another_streams_value_waits_for_it() -> None:
    unit = tb.Device("cuda")
    x = tb.ones((4,), device=unit)
    unit.synchronize()
    with tb.stream(tb.Stream(unit)):
        y = busy(unit)[0, :4].to(tb.float32) + x
    assert y.to("cpu", non_blocking=True).tolist() == [2.0] * 4


def test_pinned_memory_is_held_while_it_is_copied() -> None:
    unit = tb.Device("cuda")
    for k in range(6):
        waits = busy(unit) if k % 3 == 0 else None
        there = tb.full((1 << 22,), float(k), device="cpu").pin_memory(unit).to(unit, non_blocking=True)
        gc.collect()
        for _ in range(3):
            tb.full((1 << 22,), -1.0, device="cpu").pin_memory(unit)
        assert float((there - k).abs().max().item()) == 0.0
        del waits


def test_pinned_memory_that_there_is_not_is_refused() -> None:
    unit = tb.Device("cuda")
    with pytest.raises(tb.OutOfMemoryError, match="bytes of pinned memory of the host"):
        cuda.runtime().pin(1 << 46, 0)
    assert (tb.ones((3,), device=unit) + 1).tolist() == [2.0] * 3


def test_bad_indices_are_told_when_the_copy_is_waited_for() -> None:
    x = tb.arange(3, device="cuda")
    actual = x[tb.asarray([7], device="cuda")].to("cpu", non_blocking=True)
    with pytest.raises(IndexError, match="index 7 is out of range for an axis of length 3"):
        actual.tolist()
    assert x.to("cpu", non_blocking=True).tolist() == [0, 1, 2]


@pytest.mark.skipif(cards() < 2, reason="there are not two GPUs here")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "complex64"])
def test_two_gpus_copy_from_each_other(dtype: str) -> None:
    kind = getattr(tb, dtype)
    host = (tb.arange(3_000_007, device="cpu") % 60).to(kind)
    for here, there in (("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")):
        for _ in range(3):
            x = host.to(here)
            y = (x + x).to(there)
            del x
            tb.zeros((3_000_007,), dtype=kind, device=here)
            assert y.device == tb.Device("cuda", int(there[-1]))
            np.testing.assert_array_equal(y.to(tb.complex128).numpy(), 2 * host.to(tb.complex128).numpy())
    turned = tb.arange(12.0, device="cuda:0").reshape(3, 4).T
    assert turned.to("cuda:1").tolist() == turned.tolist()


@pytest.mark.skipif(cards() < 2, reason="there are not two GPUs here")
def test_a_peer_copy_comes_behind_the_value_and_before_what_uses_it() -> None:
    one, other = tb.Device("cuda", 0), tb.Device("cuda", 1)
    busy(one).to(other)
    for device in (one, other):
        device.synchronize()
    for _ in range(3):
        y = busy(one)
        moved = y.to(other, non_blocking=True)
        del y
        tb.full((8192, 8192), -1.0, device=one, dtype=tb.float64)
        total: Any = moved.sum().item()
        assert total == 8192.0**2


@pytest.mark.skipif(cards() < 2, reason="there are not two GPUs here")
def test_every_gpu_has_streams_and_statistics_of_its_own() -> None:
    for unit in (tb.Device("cuda", 0), tb.Device("cuda", 1)):
        before = unit.memory_stats().allocated
        with unit, tb.stream() as side:
            x = tb.ones((1 << 20,)) + 1
        side.synchronize()
        assert unit.memory_stats().allocated >= before + (4 << 20)
        assert float(x.sum().item()) == 2.0 * (1 << 20)
    a, b = tb.ones((2,), device="cuda:0"), tb.ones((2,), device="cuda:1")
    with pytest.raises(tb.DeviceError, match="operands lie on"):
        a + b
