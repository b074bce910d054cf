"""Memory that is kept for reuse is never in use: by tensors, views, exports or other threads."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus_cpu.compiler import NATIVE

SIZE = 1 << 20


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    assert NATIVE.compiler() is not None
    gc.collect()
    tb.empty_cache("cpu")
    yield
    tb.empty_cache("cpu")


def reserved() -> int:
    return tb.device("cpu").memory_stats().reserved


def filled(value: float) -> tb.Tensor:
    return tb.add(tb.full((SIZE,), value, dtype=tb.float32, device="cpu"), 0.0)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_freed_memory_is_reused_and_counted() -> None:
    x = filled(1.0)
    tb.empty_cache("cpu")
    assert reserved() == 0
    place = address(x.numpy())
    del x
    gc.collect()
    assert reserved() >= 4 * SIZE
    y = tb.exp(tb.zeros((SIZE,), device="cpu"))
    names = {address(y.numpy())}
    names |= {address(filled(2.0).numpy()) for _ in range(3)}
    assert place in names
    tb.empty_cache("cpu")
    assert reserved() == 0
    assert tb.device("cpu").memory_stats().scope == "process"
    np.testing.assert_array_equal(y.numpy(), np.ones(SIZE))


@pytest.mark.parametrize(
    "keep",
    [
        lambda x: x.numpy(), lambda x: x.numpy()[5::7], lambda x: x.numpy().reshape(4, -1).T,
        lambda x: memoryview(x.numpy()),
        lambda x: np.from_dlpack(x), lambda x: x[3:], lambda x: x.reshape((2, -1)), lambda x: np.asarray(x),
        lambda x: x.numpy().view("u1"),
    ],
)  # fmt: skip
def test_memory_that_something_refers_to_is_not_reused(keep: Any) -> None:
    x = filled(7.0)
    reference = keep(x)
    del x
    gc.collect()
    others = [filled(float(k)) for k in range(8)]
    actual = reference.numpy() if isinstance(reference, tb.Tensor) else np.asarray(reference)
    actual = actual.view(np.float32) if actual.dtype == np.uint8 else actual
    assert (actual == 7).all()
    for k, other in enumerate(others):
        assert (other.numpy() == k).all()


def test_more_than_the_limit_is_not_kept() -> None:
    compiler = NATIVE.compiler()
    assert compiler is not None
    compiler.runtime.tb_set_limit(6 * SIZE)
    try:
        values = [filled(float(k)) for k in range(5)]
        del values
        gc.collect()
        assert reserved() <= 6 * SIZE
        large = tb.add(tb.zeros((4 * SIZE,), device="cpu"), 1.0)
        del large
        assert reserved() <= 6 * SIZE
    finally:
        compiler.runtime.tb_set_limit(1 << 30)


def test_arrays_of_the_user_come_from_numpy() -> None:
    filled(1.0)
    before = reserved()
    a = np.ones(SIZE, np.float32)
    del a
    assert reserved() == before


@pytest.mark.full
def test_many_threads_share_the_pool() -> None:
    wrong = []

    def work(seed: int) -> None:
        for k in range(40):
            value = float(seed * 100 + k)
            x = filled(value)
            y = tb.multiply(x, 2.0)
            if not ((x.numpy() == value).all() and (y.numpy() == 2 * value).all()):
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_computes_and_leaves_the_parent_alone() -> None:
    x = filled(3.0)
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            tb.exp(x)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                try:
                    good = (tb.add(x, 1.0).numpy() == 4).all() and float(tb.sum(filled(1.0)).item()) == SIZE
                    tb.empty_cache("cpu")
                    os._exit(0 if good else 1)
                except BaseException:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert (x.numpy() == 3).all()
