"""Ranks whose work on a GPU does not end with the library's part, by stand-ins for the GPU and for NCCL.

What the library is given is done once all ranks have given as much; else it waits on the GPU for ever. The
waits of the host are those of the cuda device.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.backend_api import Reports
from tensorbus.distributed.process_group import connection
from tensorbus.distributed.process_group.group import get_group

from thread_communicators import thread_communicators

pytest.importorskip("tensorbus_nccl", reason="tensorbus-nccl is not installed")
cuda = pytest.importorskip("tensorbus_cuda.device", reason="tensorbus-cuda is not installed")
RANKS = 2


class _Card:
    """A GPU: it does nothing more once it waits for what does not come."""

    def __init__(self, index: int) -> None:
        self.queued: list[threading.Event] = []
        unit = self.unit = object.__new__(cuda.Unit)
        unit.index, unit.name = index, f"card:{index}"
        unit._device, unit._context = SimpleNamespace(synchronize=self.synchronize), nullcontext()
        unit.failures = SimpleNamespace(done=lambda: None)
        unit.pinned = SimpleNamespace(release=lambda: None)
        unit._running, unit._unread, unit._errors = False, False, None
        unit.late, unit.looks, unit.interruptible, unit.marks = [], [], None, {}
        unit.stream = lambda: SimpleNamespace(record=lambda: SimpleNamespace(ptr=index))

    def synchronize(self) -> None:
        for done in list(self.queued):
            done.wait()


class _Library:
    """One rank's end: calls return at once. ``abort`` does, too: the GPU waits on, unless it ``ends``."""

    queues = True
    ends = False
    slow = 0.0
    """Seconds that an abort takes."""
    log: list[str] = []
    """Aborts that are over, and calls, in order."""

    def __init__(self, inner: Any, rendezvous: Any, cards: list[_Card]) -> None:
        self.meeting, self.inner = rendezvous, inner
        self.queued = cards[rendezvous.rank].queued
        self.calls = 0
        self.events: list[threading.Event] = []

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        done, store, rank = threading.Event(), self.meeting.store, self.meeting.rank
        self.queued.append(done)
        self.events.append(done)
        self.calls += 1
        self.log.append(f"call {self.meeting.rank}")
        keys = [f"{self.meeting.name}/given/{self.calls}/{other}" for other in range(RANKS)]
        store.set(keys[rank], str(x.size).encode())

        def work() -> None:
            with suppress(dist.DistributedError):  # a rank that gives nothing leaves it undone
                sizes = [int(store.get(key, 60.0)) for key in keys]
                if x.size == min(sizes):  # nothing is missing
                    done.set()

        threading.Thread(target=work, daemon=True).start()
        return x * RANKS

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


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[_Card]]:
    cards = [_Card(index) for index in range(RANKS)]
    if importlib.util.find_spec("cupy") is None:
        cupy: Any = ModuleType("cupy")
        cupy.cuda = SimpleNamespace(runtime=SimpleNamespace(CUDARuntimeError=OSError))
        monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr("tensorbus_cuda.unit.event_query", lambda: lambda ptr: 600)
    monkeypatch.setattr("tensorbus_cuda.unit._LOOKING_SECONDS", 0.01)
    runtime: Any = tb.Device("refdev").runtime

    class _Runtime(type(runtime)):
        units = [card.unit for card in cards]
        for name in ("raise_later", "not_later", "make_waits_interruptible", "interrupt_waits"):
            locals()[name] = getattr(cuda.CudaRuntime, name)

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

    monkeypatch.setattr(runtime, "__class__", _Runtime)
    change = lambda inner, meeting: _Library(inner, meeting, cards)  # noqa: E731
    with thread_communicators("without end", change):
        yield cards
    for card in cards:
        for done in card.queued:
            done.set()


def test_a_mismatch_ends_a_read_of_what_never_comes(
    cards: list[_Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank with the larger operand waits on the host, where it reads the sum, until it is told why.

    Whoever reads it once more, told and all, is told again.
    """
    monkeypatch.setattr(connection, "_ABORT_SECONDS", 0.3)

    def rank() -> list[str]:
        here, errors = dist.get_rank(), []
        x = tb.ones((2, 500)[here], device=f"refdev:{here}")
        try:
            total = dist.functional.all_reduce(x)
            assert total.tolist() == [RANKS] * 2
            dist.barrier()
        except dist.DistributedError as error:
            errors.append(str(error))
        try:
            get_group().run("all_reduce", [x], lambda c: c.all_reduce(x, "sum"))
        except dist.DistributedError as error:
            errors.append(str(error))
        if here == 1:
            for _ in range(2):
                with pytest.raises(dist.DistributedError, match="the ranks ask for different things"):
                    (x * 2).tolist()
        return errors

    for first, later in dist.run_ranks(rank, RANKS, prefer="without end", timeout=30.0):
        for text in (first, later):
            assert "the ranks ask for different things" in text
            assert "float32[2]" in text
            assert "float32[500]" in text
    assert not all(done.is_set() for done in cards[1].queued)


def test_an_interrupt_ends_its_group_and_another_goes_on(
    cards: list[_Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was given to the GPU would keep the other group's work waiting behind it."""
    monkeypatch.setattr(_Library, "ends", True)
    waits = connection.reach

    def interrupted(*arguments: Any) -> bool:
        if dist.get_rank() == 0 and not entered:
            entered.append(True)
            raise KeyboardInterrupt
        return waits(*arguments)

    entered: list[bool] = []

    def rank() -> list[Any]:
        here = dist.get_rank()
        x = tb.ones((2,), device=f"refdev:{here}")
        first, other = dist.new_group([0, 1]), dist.new_group([0, 1])
        assert first is not None
        for group in (first, other):
            group.run("all_reduce", [x], lambda c: c.all_reduce(x, "sum")).tolist()
        message = ""
        if here == 0:
            monkeypatch.setattr(connection, "reach", interrupted)
            with pytest.raises(KeyboardInterrupt):
                first.run("barrier", [x], lambda c: c.barrier())
            with pytest.raises(dist.DistributedError) as caught:
                first.run("barrier", [x], lambda c: c.barrier())
            message = str(caught.value)
        return [message, dist.functional.all_reduce(x, group=other).tolist()]

    (message, total), (none, same) = dist.run_ranks(rank, RANKS, prefer="without end", timeout=30.0)
    assert "barrier, call 2 of group" in message.replace("barrier on refdev:0", "barrier")
    assert "KeyboardInterrupt came to it on this rank" in message
    assert not none
    assert total == same == [2.0, 2.0]


def test_new_work_waits_for_an_abort(cards: list[_Card], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep the abort waiting, and come behind what never ends; a read that is told does not wait."""
    monkeypatch.setattr(_Library, "ends", True)
    monkeypatch.setattr(_Library, "slow", 1.5)
    _Library.log.clear()

    def rank() -> list[float]:
        here = dist.get_rank()
        x = tb.ones((2, 500)[here], device=f"refdev:{here}")

        def mismatched() -> None:
            dist.functional.all_reduce(x).tolist()
            dist.barrier()

        with pytest.raises(dist.DistributedError, match="the ranks ask for different things"):
            mismatched()
        other = dist.new_group([0, 1])
        return dist.functional.all_reduce(tb.ones(2, device=f"refdev:{here}"), group=other).tolist()

    assert dist.run_ranks(rank, RANKS, prefer="without end", timeout=30.0) == [[2.0, 2.0]] * RANKS
    for here in range(RANKS):
        done = [what for what in _Library.log if what.endswith(str(here))]
        assert done[-2:] == [f"abort {here}", f"call {here}"]


def test_a_rank_does_not_leave_amid_an_abort(cards: list[_Card], monkeypatch: pytest.MonkeyPatch) -> None:
    """A library would go on in a process that gives everything back."""
    monkeypatch.setattr(_Library, "ends", True)
    monkeypatch.setattr(_Library, "slow", 1.5)
    _Library.log.clear()

    def rank() -> None:
        group = get_group()
        dist.barrier()
        for each in group.connections():
            each.fail(dist.DistributedError("it was asked for."))

    dist.run_ranks(rank, RANKS, prefer="without end", timeout=30.0)
    assert sorted(_Library.log)[:RANKS] == [f"abort {here}" for here in range(RANKS)]


def test_a_barrier_tells_what_its_communicator_knows(
    cards: list[_Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of another shape is known once the device has it, which nobody may have looked at before."""

    def problem(self: _Library) -> str:
        watched = threading.current_thread().name == "tensorbus-watch"
        return "" if watched or self.meeting.rank == 0 or not self.calls else "recv: it was of another shape"

    monkeypatch.setattr(_Library, "ends", True)
    monkeypatch.setattr(_Library, "problem", problem, raising=False)

    def rank() -> str:
        here = dist.get_rank()
        if not here:
            dist.barrier()
            return ""
        with pytest.raises(dist.DistributedError) as raised:
            dist.barrier()
        return str(raised.value)

    none, message = dist.run_ranks(rank, RANKS, prefer="without end", timeout=30.0)
    assert not none
    assert "without end failed: recv: it was of another shape" in message
