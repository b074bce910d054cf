"""The pool of device memory over memory that stands in for CuPy's: what comes back, when, and to whom."""

from __future__ import annotations

import importlib
import weakref
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest


class _Memory:
    """An allocation of CuPy's pool, which takes it back with the last reference."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr


class _Stream:
    """Writes down what it is made to wait for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waited: list[str] = []

    def record(self) -> str:
        return f"the work of {self.name}"

    def wait_event(self, event: str) -> None:
        self.waited.append(event)


@pytest.fixture
def pool(cupy_or_names: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    memory = importlib.import_module("tensorbus_cuda.memory")
    main = _Stream("main")
    unit = SimpleNamespace(
        stream=lambda: main, default=main, silent=None, current=nullcontext,
        failures=SimpleNamespace(lost=None), total=16 << 20,
    )  # fmt: skip
    pool = memory.Pool(unit)
    numbers = iter(range(1 << 12, 1 << 20, 1 << 12))
    monkeypatch.setattr(pool, "_from_cupy", lambda size: _Memory(next(numbers)))
    return pool


def test_memory_comes_back_without_a_finalizer_in_python(pool: Any) -> None:
    """A ``__del__`` would lose an interrupt that arrives in it."""
    block = pool.allocate(1000)
    assert not hasattr(type(block), "__del__")
    ptr, small = block.ptr, block.nbytes
    assert (small, pool.used.allocated, pool.used.peak) == (1024, 1024, 1024)
    del block
    assert pool.used.allocated == 0
    again = pool.allocate(1024)
    assert again.ptr == ptr
    assert (pool.used.allocated, pool.used.peak) == (1024, 1024)


@pytest.mark.parametrize("nbytes", [1000, 1 << 21])
def test_memory_that_another_stream_used_waits_for_it(pool: Any, nbytes: int) -> None:
    side = _Stream("side")
    block = pool.allocate(nbytes)
    lives, ptr, main = weakref.ref(block.memory), block.ptr, block.stream
    block.used_by(side)
    block.used_by(side)
    del block
    assert lives() is not None, "memory that a stream may still write to went to others"
    other = pool.allocate(nbytes)
    assert lives() is None
    assert other.ptr != ptr
    assert main.waited == ["the work of side"]
    assert pool.used.allocated == other.nbytes


def test_freed_blocks_take_no_more_than_their_share(pool: Any) -> None:
    """The pool keeps a sixteenth of all memory, here 1 MiB; what is asked for again is no new memory."""
    blocks = pool.allocate_several([1 << 19] * 3)
    lives = [weakref.ref(block.memory) for block in blocks]
    places = [block.ptr for block in blocks]
    blocks.clear()
    assert pool.used.allocated == 0
    pooled = {place for place, life in zip(places, lives, strict=True) if life() is not None}
    assert len(pooled) == 2
    again = pool.allocate_several([1 << 19] * 3)
    assert {block.ptr for block in again} >= pooled
    assert pool.used.allocated == 3 << 19


def test_a_large_block_goes_back_at_once(pool: Any) -> None:
    block = pool.allocate(1 << 27)
    lives = weakref.ref(block.memory)
    part = block.part(512, 512)
    del block
    assert lives() is not None
    del part
    assert lives() is None
    assert pool.used.allocated == 0


def test_copies_of_other_threads_keep_their_memory(cupy_or_names: None) -> None:
    """What a thread queues while another one waits for all is not done when that one goes on."""
    pinned = importlib.import_module("tensorbus_cuda.copies.pinned_memory").Pinned(None)
    done, queued = SimpleNamespace(done=True), SimpleNamespace(done=False)
    pinned._hold(done, "one")
    pinned._hold(queued, "other")
    pinned.release()
    assert pinned._copies == [(queued, "other")]
