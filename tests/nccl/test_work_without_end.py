"""Ranks whose work on a GPU does not end with the library's part, by stand-ins for the GPU and for NCCL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.distributed.process_group import connection
from tensorbus.distributed.process_group.group import get_group

from stand_in_gpus import RANKS, Card, Library, stand_in_gpus

pytest.importorskip("tensorbus_nccl", reason="tensorbus-nccl is not installed")
pytest.importorskip("tensorbus_cuda.device", reason="tensorbus-cuda is not installed")


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Card]]:
    with stand_in_gpus(monkeypatch, "without end") as cards:
        yield cards


def test_a_mismatch_ends_a_read_of_what_never_comes(
    cards: list[Card], monkeypatch: pytest.MonkeyPatch
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
    cards: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was given to the GPU would keep the other group's work waiting behind it."""
    monkeypatch.setattr(Library, "ends", True)
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


def test_new_work_waits_for_an_abort(cards: list[Card], monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep the abort waiting, and come behind what never ends; a read that is told does not wait."""
    monkeypatch.setattr(Library, "ends", True)
    monkeypatch.setattr(Library, "slow", 1.5)
    Library.log.clear()

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
        done = [what for what in Library.log if what.endswith(str(here))]
        assert done[-2:] == [f"abort {here}", f"call {here}"]


def test_a_rank_does_not_leave_amid_an_abort(cards: list[Card], monkeypatch: pytest.MonkeyPatch) -> None:
    """A library would go on in a process that gives everything back."""
    monkeypatch.setattr(Library, "ends", True)
    monkeypatch.setattr(Library, "slow", 1.5)
    Library.log.clear()

    def rank() -> None:
        group = get_group()
        dist.barrier()
        for each in group.connections():
            each.fail(dist.DistributedError("it was asked for."))

    dist.run_ranks(rank, RANKS, prefer="without end", timeout=30.0)
    assert sorted(Library.log)[:RANKS] == [f"abort {here}" for here in range(RANKS)]


def test_a_program_goes_on_beside_a_close_without_end(
    cards: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library waits in it for other ranks, and for graphs that hold its work."""
    may_end, inside, over = threading.Event(), threading.Semaphore(0), threading.Semaphore(0)

    def close(self: Library) -> None:
        inside.release()
        may_end.wait(60.0)
        over.release()

    monkeypatch.setattr(Library, "ends", True)
    monkeypatch.setattr(Library, "close", close)
    monkeypatch.setattr(connection, "_CLOSE_SECONDS", 0.1)

    def rank() -> list[float]:
        return dist.functional.all_reduce(tb.ones(2, device=f"refdev:{dist.get_rank()}")).tolist()

    assert dist.run_ranks(rank, RANKS, prefer="without end", timeout=30.0) == [[2.0, 2.0]] * RANKS
    assert not over.acquire(blocking=False)
    may_end.set()
    for count in (inside, over):
        assert all(count.acquire(timeout=60.0) for _ in range(RANKS))


def test_a_barrier_tells_what_its_communicator_knows(
    cards: list[Card], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of another shape is known once the device has it, which nobody may have looked at before."""

    def problem(self: Library) -> str:
        watched = threading.current_thread().name == "tensorbus-watch"
        return "" if watched or self.meeting.rank == 0 or not self.calls else "recv: it was of another shape"

    monkeypatch.setattr(Library, "ends", True)
    monkeypatch.setattr(Library, "problem", problem, raising=False)

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
