"""Stand-ins for GPUs, whose waits of the host are those of the cuda device, and for a library of collectives.

What the library is given is done once all ranks have given as much; else it waits on the GPU for ever.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.backend_api import Reports

from thread_communicators import thread_communicators

RANKS = 2
_more: list[Any] = []
"""Units of refdev beyond those that it has: plans of calls know them, and so they stay."""


class Card:
    """A GPU: it does nothing more once it waits for what does not come."""

    def __init__(self, index: int) -> None:
        self.queued: list[threading.Event] = []
        from tensorbus_cuda.unit import Unit

        unit = self.unit = object.__new__(Unit)
        unit.index, unit.name = index, f"card:{index}"
        unit._device, unit._context = SimpleNamespace(synchronize=self.synchronize), nullcontext()
        unit.failures = SimpleNamespace(done=lambda: None)
        unit.pinned = SimpleNamespace(release=lambda: None)
        unit._running, unit._unread, unit._errors = False, False, None
        unit.late, unit.looks, unit.interruptible, unit.marks = [], [], None, {}
        unit.read_checks, unit.origins = [], frozenset()
        unit.stream = lambda: SimpleNamespace(record=lambda: SimpleNamespace(ptr=index))

    def synchronize(self) -> None:
        for done in list(self.queued):
            done.wait()


class Library:
    """One rank's end: calls return at once. ``abort`` does, too: the GPU waits on, unless it ``ends``."""

    queues = True
    ends = False
    slow = 0.0
    """Seconds that an abort takes."""
    log: list[str] = []
    """Aborts that are over, and calls, in order."""

    def __init__(self, inner: Any, rendezvous: Any, cards: list[Card]) -> None:
        self.meeting, self.inner = rendezvous, inner
        self.queued = cards[rendezvous.rank].queued
        self.calls = 0
        self.events: list[threading.Event] = []
        for name in ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "receive"):
            setattr(self, name, getattr(inner, name))  # of which nothing is asked here

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        done, store, rank = threading.Event(), self.meeting.store, self.meeting.rank
        self.queued.append(done)
        self.events.append(done)
        self.calls += 1
        self.log.append(f"call {self.meeting.rank}")
        keys = [f"{self.meeting.name}/given/{self.calls}/{other}" for other in range(self.meeting.size)]
        store.set(keys[rank], str(x.size).encode())

        def work() -> None:
            with suppress(dist.DistributedError):  # a rank that gives nothing leaves it undone
                sizes = [int(store.get(key, 60.0)) for key in keys]
                if x.size == min(sizes):  # nothing is missing
                    done.set()

        threading.Thread(target=work, daemon=True).start()
        return x * self.meeting.size

    def barrier(self) -> None:
        self.all_reduce(tb.ones((1,), device=f"refdev:{self.meeting.rank}"), "sum")

    def abort(self, reason: str) -> None:
        time.sleep(self.slow)
        self.log.append(f"abort {self.meeting.rank}")
        self.inner.abort(reason)
        for done in self.events if self.ends else ():
            done.set()

    def close(self) -> None:
        self.inner.close()


@contextmanager
def stand_in_gpus(
    monkeypatch: pytest.MonkeyPatch, name: str, ranks: int = RANKS, library: Any = Library
) -> Iterator[list[Card]]:
    """Return a context in which the ranks, each with a device of refdev, are connected by ``name``."""
    from tensorbus_cuda import device as cuda
    from tensorbus_refdev import device as refdev
    from tensorbus_refdev import kernels

    cards = [Card(index) for index in range(ranks)]
    if importlib.util.find_spec("cupy") is None:
        cupy: Any = ModuleType("cupy")
        cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(CUDARuntimeError=OSError))
        monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("tensorbus_cuda.unit.event_query", lambda: lambda ptr: 600)
    monkeypatch.setattr("tensorbus_cuda.unit._LOOKING_SECONDS", 0.01)
    runtime: Any = tb.Device("refdev").runtime

    class _Runtime(type(runtime)):
        units = [card.unit for card in cards]
        for method in (
            "raise_later", "not_later", "make_waits_interruptible", "interrupt_waits", "check_reads"
        ):  # fmt: skip
            locals()[method] = getattr(cuda.CudaRuntime, method)

        def synchronize(self, index: int) -> None:
            self.units[index].wait()
            self.units[index].check(Reports())

        def host_view(self, value: Any, index: int) -> Any:
            self.synchronize(index)
            return super().host_view(value, index)

        def create_stream(self, index: int) -> Any:
            return object()

        def use_stream(self, stream: Any, index: int) -> Any:
            return None

        def synchronize_stream(self, stream: Any, index: int) -> None:
            self.synchronize(index)

        def record_event(self, stream: Any, index: int) -> Any:
            return list(cards[index].queued)

        def wait_event(self, event: Any, stream: Any, index: int) -> None:
            pass

        def synchronize_event(self, event: Any, index: int) -> None:
            self.synchronize(index)

        def event_done(self, event: Any, index: int) -> bool:
            return all(done.is_set() for done in event)

        def elapsed_time(self, start: Any, end: Any, index: int) -> float:
            raise NotImplementedError

    while len(refdev.UNITS) + len(_more) < ranks:
        _more.append(type(refdev.UNITS[0])(len(refdev.UNITS) + len(_more)))
    units = [*refdev.UNITS, *_more]
    for module in (refdev, kernels):
        monkeypatch.setattr(module, "UNITS", units)
    monkeypatch.setattr(tb.Device("refdev")._backend, "device_count", len(units))
    monkeypatch.setattr(runtime, "__class__", _Runtime)
    with thread_communicators(name, lambda inner, meeting: library(inner, meeting, cards)):
        yield cards
    for card in cards:
        for done in card.queued:
            done.set()
