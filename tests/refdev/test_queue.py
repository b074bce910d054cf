"""Work is queued: it runs when somebody waits, in order, and its errors surface then, naming the op."""

from __future__ import annotations

import threading

import pytest
import tensorbus as tb
from tensorbus_refdev.device import MAX_QUEUED, UNITS

UNIT = tb.Device("refdev", 0)


@pytest.fixture(autouse=True)
def _idle():
    UNIT.synchronize()
    yield
    UNIT.synchronize()


def _waiting() -> int:
    return len(UNITS[0]._work)


def _wrong():
    """Return a result whose kernel fails: the index is known to the device only."""
    x = tb.asarray([1.0, 2.0, 3.0], device=UNIT)
    return tb.gather(x, tb.asarray([7], device=UNIT))


def test_work_waits_until_somebody_waits_for_it():
    x = tb.ones((3,), device=UNIT)
    UNIT.synchronize()
    y = x + 1
    z = y.sum()
    assert _waiting() == 2
    assert z.shape == ()
    assert z.item() == 6.0
    assert _waiting() == 0


def test_much_work_does_not_wait():
    x = tb.zeros((3,), device=UNIT)
    for _ in range(10 * MAX_QUEUED):
        x = x + 1
        assert _waiting() < MAX_QUEUED
    assert x.tolist() == [10.0 * MAX_QUEUED] * 3


def test_an_error_surfaces_at_synchronize_naming_the_op():
    y = _wrong()
    with pytest.raises(
        tb.TensorbusError, match=r"gather on refdev:0 failed: .*index 7 is out of range"
    ) as caught:
        UNIT.synchronize()
    assert isinstance(caught.value, IndexError)
    assert caught.value.__cause__ is not None
    UNIT.synchronize()
    with pytest.raises(tb.IndexingError, match="gather"):
        y.tolist()


def test_an_error_surfaces_at_the_read_once():
    y = _wrong()
    with pytest.raises(tb.IndexingError, match="gather on refdev:0"):
        y.tolist()
    UNIT.synchronize()


def test_what_depends_on_failed_work_fails_with_its_error():
    x = tb.ones((3,), device=UNIT)
    y = ((_wrong() + 1) * 2).sum()
    z = x + 1
    assert z.tolist() == [2.0, 2.0, 2.0], "other work is not concerned"
    with pytest.raises(tb.IndexingError, match="gather on refdev:0"):
        y.item()
    UNIT.synchronize()


def test_any_error_of_a_kernel_is_a_device_error():
    def broken(elements):
        raise ZeroDivisionError("what a kernel never should do")

    value = UNITS[0].launch("exp", broken, (tb.ones((2,), device=UNIT)._value,), (2,), tb.float32)
    with pytest.raises(
        tb.DeviceError, match="exp on refdev:0 failed: ZeroDivisionError: what a kernel never should do"
    ):
        UNIT.synchronize()
    assert value.shape == (2,)


def test_an_interrupt_loses_no_work():
    interrupts = [KeyboardInterrupt()]

    def interrupted(elements):
        if interrupts:
            raise interrupts.pop()
        return elements * 2

    x = tb.ones((2,), device=UNIT)
    value = UNITS[0].launch("exp", interrupted, (x._value,), (2,), tb.float32)
    with pytest.raises(KeyboardInterrupt):
        UNIT.synchronize()
    UNIT.synchronize()
    assert UNITS[0].heap.elements(value).tolist() == [2.0, 2.0]


def test_shapes_are_refused_at_the_call():
    with pytest.raises(tb.ShapeError, match="add"):
        tb.ones((2,), device=UNIT) + tb.ones((3,), device=UNIT)
    assert _waiting() <= 2


def test_many_threads_use_one_unit():
    totals = []

    def work(seed: int) -> None:
        x = tb.ones((16,), device=UNIT) * seed
        for _ in range(200):
            x = x + 1
        totals.append((seed, x.sum().item()))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(totals) == [(seed, 16.0 * (seed + 200)) for seed in range(4)]


def test_dtypes_that_numpy_lacks_are_refused():
    with pytest.raises(tb.UnsupportedDtypeError, match="refdev:0 has no bfloat16"):
        tb.ones((2,), dtype=tb.bfloat16, device=UNIT)
