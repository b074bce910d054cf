"""Capsules of OpenCL memory: what happens to those that nobody reads, and to those that a reader refuses."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import tensorbus as tb
from tensorbus.kernels import dlpack_capsule as dlpack
from tensorbus_opencl import dlpack as exchange


def numbers() -> tb.Tensor:
    return tb.arange(8.0, device="opencl") + 1


def test_numpy_says_that_it_reads_no_memory_of_opencl(capfd: pytest.CaptureFixture[str]) -> None:
    x = tb.arange(8.0, device="opencl")
    with pytest.raises((RuntimeError, BufferError), match="Unsupported device"):
        np.from_dlpack(x)
    assert capfd.readouterr().err == ""
    np.testing.assert_array_equal(np.from_dlpack(x, device="cpu"), np.arange(8))


def test_a_capsule_that_nobody_took_is_let_go_with_the_next() -> None:
    before = dlpack.held()
    x = numbers()
    for _ in range(5):
        x.__dlpack__(max_version=(1, 1))
    assert dlpack.held() <= before + 1


def test_a_capsule_that_somebody_holds_can_be_read_later() -> None:
    class Producer:
        def __init__(self, capsule: object) -> None:
            self.capsule = capsule

        def __dlpack__(self, **_: object) -> object:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return (exchange.OPENCL, 0)

    x = numbers()
    retained = Producer(x.__dlpack__(max_version=(1, 1)))
    for _ in range(3):
        tb.ones(4, device="opencl").__dlpack__()
    del x
    gc.collect()
    assert tb.from_dlpack(retained).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_a_reader_that_is_done_lets_go() -> None:
    x = numbers()
    before = dlpack.held()
    y = tb.from_dlpack(x)
    del x
    gc.collect()
    assert y.sum().item() == 36.0
    del y
    gc.collect()
    assert dlpack.held() <= before
