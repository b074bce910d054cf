"""The heap is apart from the host's: handles are opaque, blocks are counted, and a full heap is an error."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_refdev.device import UNITS

UNIT = tb.Device("refdev", 1)


@pytest.fixture
def small_heap(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Room for 4096 bytes more than are in use."""
    gc.collect()
    UNIT.synchronize()
    heap = UNITS[1].heap
    monkeypatch.setattr(heap, "limit", heap.used.allocated + 4096)
    yield heap.limit
    UNIT.synchronize()


def test_values_are_opaque_to_the_host():
    value = tb.ones((2, 2), device=UNIT)._value
    for thing in (value, value.buffer):
        assert not isinstance(thing, np.ndarray)
        for name in ("__array__", "__array_interface__", "__buffer__", "__len__", "__dlpack__", "__float__"):
            assert not hasattr(thing, name), f"{type(thing).__name__} has {name}"
        with pytest.raises(TypeError):
            memoryview(thing)
        with pytest.raises(TypeError):
            np.add(thing, 1.0)
        with pytest.raises(TypeError):
            np.frombuffer(thing)


def test_a_tensor_is_no_host_array():
    x = tb.ones((2,), device=UNIT)
    with pytest.raises(TypeError, match=r"copy it with \.numpy"):
        np.asarray(x)
    assert x.numpy().tolist() == [1.0, 1.0]


def test_what_is_exported_holds_its_block():
    x = tb.ones((2, 3), device=UNIT) * 2
    UNITS[1].drain()
    before = UNITS[1].heap.used.allocated
    exported = np.from_dlpack(x)
    assert UNITS[1].heap.used.allocated == before
    assert not exported.flags.writeable
    del x
    assert UNITS[1].heap.used.allocated == before
    assert exported.tolist() == [[2.0] * 3] * 2
    del exported
    assert UNITS[1].heap.used.allocated == before - 24


def test_a_kernel_refuses_a_host_array_and_a_value_of_the_other_unit():
    unit, other = UNITS[1], tb.ones((2,), device="refdev:0")._value
    for stranger in (np.ones(2), other, [1.0]):
        with pytest.raises(TypeError, match=r"add takes values of refdev:1 and Python scalars"):
            unit.launch("add", np.add, (stranger, 1.0), (2,), tb.float32)


def test_units_do_not_mix():
    a, b = tb.ones((2,), device="refdev:0"), tb.ones((2,), device="refdev:1")
    with pytest.raises(tb.DeviceError, match=r"refdev:0.*refdev:1"):
        a + b
    assert (a + b.to("refdev:0")).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("target", ["refdev:0", "refdev:1", "cpu"])
def test_copies_between_devices_keep_every_dtype(target):
    for dtype in sorted(UNIT.properties.dtypes, key=str):
        x = tb.asarray([0, 1, 1], device=UNIT).to(dtype)
        there = x.flip(axis=0).to(target)
        assert there.device == tb.device(target)
        assert there.dtype is dtype
        assert there.tolist() == x.tolist()[::-1]


def test_blocks_are_counted_and_given_back():
    UNIT.synchronize()
    gc.collect()
    before = UNIT.memory_stats()
    x = tb.ones((100, 10), device=UNIT)
    assert UNIT.memory_stats().allocated == before.allocated + 4000
    view = x[5:7]
    assert UNIT.memory_stats().allocated == before.allocated + 4000, "a view takes no memory"
    UNIT.synchronize()
    del x
    assert UNIT.memory_stats().allocated == before.allocated + 4000, "a view keeps its block"
    del view
    after = UNIT.memory_stats()
    assert after.allocated == before.allocated
    assert after.peak >= before.allocated + 4000
    assert after.total == UNIT.properties.memory
    UNIT.reset_peak_memory_stats()
    assert UNIT.memory_stats().peak == before.allocated


def test_a_full_heap_is_an_error_that_leaves_everything_usable(small_heap):
    x = tb.ones((256,), device=UNIT)
    UNIT.synchronize()
    with pytest.raises(
        tb.OutOfMemoryError, match=r"refdev:1: no room for float32\[1024\], 4096 bytes"
    ) as caught:
        tb.zeros((1024,), device=UNIT)
    assert str(small_heap) in str(caught.value)
    with pytest.raises(tb.OutOfMemoryError):
        tb.asarray(np.zeros(1024, np.float32), device=UNIT)
    with pytest.raises(MemoryError):
        tb.concat([x, x, x, x])
    x[0] = 5.0
    UNIT.synchronize()
    assert x.sum().item() == 260.0


def test_queued_work_is_run_before_memory_is_refused(small_heap):
    x = tb.ones((128,), device=UNIT)
    for _ in range(50):
        x = x * 1.0  # each result is 512 bytes, and the queue keeps its operands
    assert x.sum().item() == 128.0


def test_the_limit_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("TENSORBUS_REFDEV_MEMORY", "1000")
    program = (
        "import tensorbus as tb; d = tb.device('refdev'); print(d.properties.memory);"
        "tb.zeros((251,), device=d)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1000"]
    assert "OutOfMemoryError: refdev:0: no room for float32[251], 1004 bytes: 0 of 1000 bytes" in done.stderr
