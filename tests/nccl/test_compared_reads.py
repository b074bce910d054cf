"""No value is read behind a collective before the ranks have compared what they ask for, by stand-ins.

The library does not notice that ranks ask for different things: its work is done, and its results are wrong.
"""

from __future__ import annotations

import pickle
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.backend_api import Reports
from tensorbus.distributed.process_group import fingerprint_board, fingerprint_relay
from tensorbus.distributed.process_group.captured_collectives import CapturedCollectives
from tensorbus.distributed.process_group.group import get_group

from stand_in_gpus import Card, stand_in_gpus

pytest.importorskip("tensorbus_nccl", reason="tensorbus-nccl is not installed")
CudaRuntime: Any = pytest.importorskip(
    "tensorbus_cuda.device", reason="tensorbus-cuda is not installed"
).CudaRuntime
RANKS = 3
F = dist.functional


class _Blind:
    """One rank's end of a library: a call is done once all ranks have made as many, whichever they were."""

    queues = True

    def __init__(self, inner: Any, rendezvous: Any, cards: list[Card]) -> None:
        self.meeting, self.inner = rendezvous, inner
        self.queued = cards[rendezvous.ranks[rendezvous.rank]].queued
        self.calls = 0
        self.send, self.receive = inner.send, inner.receive

    def give(self, count: int = 1) -> None:
        """Give the device so many calls."""
        done, store = threading.Event(), self.meeting.store
        self.queued.append(done)
        for _ in range(count):
            self.calls += 1
            keys = [f"{self.meeting.name}/given/{self.calls}/{other}" for other in range(self.meeting.size)]
            store.set(keys[self.meeting.rank], b"1")

        def work() -> None:
            with suppress(dist.DistributedError):  # the ranks have left
                store.wait(keys, 60.0)
                done.set()

        threading.Thread(target=work, daemon=True).start()

    def all_reduce(self, x: tb.Tensor, reduction: str) -> tb.Tensor:
        self.give()
        return x * self.meeting.size

    def all_gather(self, x: tb.Tensor, shapes: Sequence[Any]) -> list[tb.Tensor]:
        self.give()
        return [tb.ones(shape, dtype=x.dtype, device=x.device) for shape in shapes]

    def reduce_scatter(self, xs: Sequence[tb.Tensor], reduction: str) -> tb.Tensor:
        self.give()
        return xs[self.meeting.rank] * self.meeting.size

    def all_to_all(self, xs: Sequence[tb.Tensor], shapes: Sequence[Any]) -> list[tb.Tensor]:
        return self.all_gather(xs[0], shapes)

    def broadcast(self, x: tb.Tensor, root: int) -> tb.Tensor:
        if root != self.meeting.rank:  # who sends to others need not wait for them
            self.give()
        else:
            self.calls += 1
            self.meeting.store.set(f"{self.meeting.name}/given/{self.calls}/{root}", b"1")
        return x * 1

    def barrier(self) -> None:
        self.give()

    def abort(self, reason: str) -> None:
        self.inner.abort(reason)
        for done in self.queued:
            done.set()

    def close(self) -> None:
        self.inner.close()


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Card]]:
    with stand_in_gpus(monkeypatch, "blind", RANKS, _Blind) as cards:
        yield cards


def _ones(*shape: int, dtype: str = "float32") -> tb.Tensor:
    return tb.ones(shape, dtype=dtype, device=f"refdev:{dist.get_rank()}")


def _list(n: int) -> list[tb.Tensor]:
    return [_ones(n) for _ in range(RANKS)]


def _gathered(n: int) -> tb.Tensor:
    x, there = _ones(2), [_ones(n if rank else 2) for rank in range(RANKS)]
    dist.gather(x, None if dist.get_rank() else there)
    return x


def _scattered(n: int) -> tb.Tensor:
    x, parts = _ones(2), [_ones(n if rank else 2) for rank in range(RANKS)]
    dist.scatter(x, None if dist.get_rank() else parts)
    return x


def _in_order(*lengths: int) -> tb.Tensor:
    return [F.all_reduce(_ones(n)) for n in lengths][-1]


def _all_to_all(to: int, of: int) -> tb.Tensor:
    """Send more, or expect more, in the exchange with the last rank alone."""
    others = [2] * (RANKS - 1)
    return F.all_to_all(_ones(2 * RANKS - 2 + to), 0, 0, [*others, to], [*others, of])


def _program(*asked: str) -> None:
    """Run what a device has captured: collectives that are numbered all at once."""
    group = get_group()
    (connection,) = group.connections()
    calls = CapturedCollectives(group, connection, _ones(1).device)
    calls.asked += asked
    calls.begin()
    connection.communicator.give(len(asked))
    calls.end(None)


def _summed(*shape: int) -> str:
    return f"all_reduce sum of float32{[*shape]}"


def _saved(x: tb.Tensor) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tb.save({"x": x}, Path(folder, "x.safetensors"))


MISMATCHES: dict[str, tuple[Callable[[bool], Any], str]] = {
    "shape": (lambda odd: F.all_reduce(_ones(3 if odd else 2)), r"float32\[2\].*float32\[3\]"),
    "dtype": (lambda odd: F.all_reduce(_ones(2, dtype="int32" if odd else "float32")), "float32.*int32"),
    "reduction": (lambda odd: F.all_reduce(_ones(2), "max" if odd else "sum"), "sum of.*max of"),
    "op": (lambda odd: (F.broadcast if odd else F.all_reduce)(_ones(2)), "all_reduce.*broadcast"),
    "root": (lambda odd: F.broadcast(_ones(2), RANKS - 1 if odd else 0), "from place 0.*from place 2"),
    "label": (lambda odd: F.all_reduce(_ones(2), label="b" if odd else "a"), ", a, .*, b"),
    "all_gather": (lambda odd: F.all_gather(_ones(2), 0, [2, 2, 2] if not odd else [1, 3, 2]), "shapes"),
    "reduce_scatter": (lambda odd: F.reduce_scatter(_ones(6, 2 if odd else 1)), r"\[6, 1\].*\[6, 2\]"),
    "lists": (lambda odd: dist.reduce_scatter(x := _ones(3 if odd else 2), _list(x.size)) or x, "float32"),
    "order": (lambda odd: _in_order(3, 2) if odd else _in_order(2, 3), r"\[2\].*\[3\], call 2"),
    "sent": (lambda odd: _all_to_all(2 + odd if dist.get_rank() == 0 else 2, 2), "sends 3 .*expects 2"),
    "expected": (lambda odd: _all_to_all(2, 2 + odd if dist.get_rank() == 0 else 2), "sends 2 .*expects 3"),
    "gather": (lambda odd: _gathered(3 if odd else 2), "gather .*rank 1 sends 2 .*expects 3"),
    "scatter": (lambda odd: _scattered(3 if odd else 2), "scatter .*rank 0 sends 3 .*expects 2"),
    "program": (
        lambda odd: (_program(_summed(2), _summed(4 if odd else 3), _summed(5)), _ones(1))[1],
        r"float32\[3\].*float32\[4\]",
    ),
    "program, and one by one": (
        lambda odd: (
            F.all_reduce(F.all_reduce(_ones(2))) if odd else (_program(_summed(2), _summed(3)), _ones(1))[1]
        ), r"float32\[3\].*float32\[2\]",
    ),
}  # fmt: skip
"""By what differs: the call, told whether it is the odd one, which is that of rank 0 or of the last."""
ODD = {"sent": 0, "expected": 0, "gather": 0, "scatter": 0}
READS: tuple[Callable[[tb.Tensor], Any], ...] = (
    lambda x: x.tolist(), lambda x: x.numpy(), str, lambda x: x.to("cpu"), lambda x: x.sum().item(),
    lambda x: x.device.runtime.synchronize(x.device.index),
    lambda x: tb.Stream(x.device).record_event().synchronize(), lambda x: x.__dlpack__(), np.from_dlpack,
    lambda x: tb.from_dlpack(x, device="cpu"), lambda x: x.__dlpack__(dl_device=(1, 0), copy=True),
    lambda x: CudaRuntime.to_dlpack(x.device.runtime, None, x.device.index), pickle.dumps,
    lambda x: _saved(x), lambda x: x.to("cpu", non_blocking=True).tolist(),
    lambda x: x.to(f"refdev:{(x.device.index + 1) % RANKS}").tolist(), lambda x: tb.zeros((2,)).copy_(x),
    lambda x: bool((x > 0).all()), lambda x: x[x > 0], tb.nonzero, lambda x: [*map(float, x)],
)  # fmt: skip


@pytest.mark.parametrize("where", ["one machine", "no shared memory"])
@pytest.mark.parametrize("kind", MISMATCHES)
def test_a_value_of_a_mismatch_is_not_read(
    cards: list[Card], monkeypatch: pytest.MonkeyPatch, kind: str, where: str
) -> None:
    """Right behind the call each rank is told: nobody sees what came of it, whatever it reads it by."""
    call, message = MISMATCHES[kind]
    if where == "no shared memory":

        def opened(*arguments: Any) -> Any:
            raise PermissionError

        monkeypatch.setattr(fingerprint_board, "_opened", opened)
    read = READS[[*MISMATCHES].index(kind) % len(READS)]

    def rank() -> str:
        F.all_reduce(_ones(2)).tolist()
        x = call(dist.get_rank() == ODD.get(kind, RANKS - 1))
        with pytest.raises(dist.DistributedError, match="the ranks ask for different things: ") as raised:
            read(x)
        with pytest.raises(dist.DistributedError, match="the ranks ask for different things: "):
            F.all_reduce(_ones(2))
        group = dist.new_group(range(RANKS))
        assert F.all_reduce(_ones(2), group=group).tolist() == [RANKS] * 2
        return str(raised.value)

    for text in dist.run_ranks(rank, RANKS, prefer="blind", timeout=30.0):
        assert re.search(message, text), text


def test_no_way_to_read_comes_before_the_comparison(cards: list[Card]) -> None:
    """Each in a group of its own, as the first thing behind a mismatch."""

    def rank() -> None:
        for read in READS:
            group = dist.new_group(range(RANKS))
            F.all_reduce(_ones(2), group=group).tolist()
            x = F.all_reduce(_ones(2), "max" if dist.get_rank() else "sum", group=group)
            with pytest.raises(dist.DistributedError, match=r"rank 0: all_reduce sum .*rank 1: .*max"):
                read(x)

    dist.run_ranks(rank, RANKS, prefer="blind", timeout=30.0)


def test_what_agrees_is_read(cards: list[Card]) -> None:
    """Also where one rank runs a program that the others run call by call, and where one is far ahead."""

    def rank() -> list[Any]:
        here = dist.get_rank()
        F.all_reduce(_ones(2)).tolist()
        (connection,) = get_group().connections()
        if here:
            assert [F.all_reduce(_ones(n)).tolist() for n in (2, 3)] == [[RANKS] * 2, [RANKS] * 3]
        else:
            _program(_summed(2), _summed(3))
        for x in (_all_to_all(2, 2), _gathered(2), _scattered(2)):
            x.tolist()
        before = connection.comparison.agreed
        if here == 1:
            time.sleep(0.5)
        x = [F.all_reduce(_ones(2)) for _ in range(30)][-1]
        _program(*[_summed(n) for n in range(2 * fingerprint_board.ENTRIES)])
        return [before, x.tolist(), connection.comparison.agreed]

    results = dist.run_ranks(rank, RANKS, prefer="blind", timeout=60.0)
    assert results == [[6, [RANKS] * 2, 36 + 2 * fingerprint_board.ENTRIES]] * RANKS


def test_a_read_waits_for_ranks_that_have_not_called(cards: list[Card]) -> None:
    """The root of a broadcast has its value at once: whether the others ask for it is known later."""
    order: list[str] = []

    def rank() -> None:
        F.all_reduce(_ones(2)).tolist()
        if not dist.get_rank():
            x = F.broadcast(_ones(2), 0)
            order.append("called")
            x.tolist()
            order.append("read")
            return
        while not order:
            time.sleep(0.01)
        time.sleep(0.2)
        order.append("comes")
        F.broadcast(_ones(2), 0)

    dist.run_ranks(rank, RANKS, prefer="blind", timeout=30.0)
    assert order == ["called", "comes", "comes", "read"]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_read_ends_where_a_rank_does_not_come(cards: list[Card], leaves: bool) -> None:
    met = threading.Barrier(RANKS)

    def rank() -> str:
        F.all_reduce(_ones(2)).tolist()
        message = ""
        if not dist.get_rank():
            with pytest.raises(dist.DistributedError) as raised:
                F.broadcast(_ones(2), 0).tolist()
            message = str(raised.value)
        if not leaves:
            met.wait(30)
        return message

    text, *_ = dist.run_ranks(rank, RANKS, prefer="blind", timeout=30.0 if leaves else 1.0)
    assert ("will not come" if leaves else "did not come within 1 seconds") in text


def test_copies_count_as_those_of_the_device_that_they_come_from(cards: list[Card]) -> None:
    """What fails there is told where a copy is read; once."""
    first, second, _ = (card.unit for card in cards)
    second.origins = frozenset({first})
    first.late.append(tb.DeviceError("a group failed"))
    with pytest.raises(tb.DeviceError, match="a group failed"):
        second.check(Reports())
    first.check(Reports())


def test_ranks_that_read_nothing_are_told(cards: list[Card]) -> None:
    """The watch compares now and then what all ranks have asked for."""

    def rank() -> None:
        F.all_reduce(_ones(2), "max" if dist.get_rank() else "sum")
        (connection,) = get_group().connections()
        end = time.monotonic() + 20
        while connection.failure is None and time.monotonic() < end:
            time.sleep(0.05)
        with pytest.raises(dist.DistributedError, match=r"rank 0: all_reduce sum .*rank 1: all_reduce max"):
            F.all_reduce(_ones(2))

    dist.run_ranks(rank, RANKS, prefer="blind", timeout=30.0)


@pytest.mark.parametrize("differs", [False, True])
def test_ranks_of_several_machines(cards: list[Card], monkeypatch: pytest.MonkeyPatch, differs: bool) -> None:
    """One rank of each machine tells the others what its own have asked for; it leaves when they know."""
    monkeypatch.setattr(fingerprint_board, "machine", lambda: str(dist.get_rank() // 2))

    def summed() -> tb.Tensor:
        here = dist.get_rank()
        for k in range(300):
            x = F.all_reduce(_ones(2), "max" if differs and here == 1 and k == 250 else "sum")
            if k == 123 * here:
                x.tolist()
        if here == RANKS - 1 and not differs:
            time.sleep(0.3)
        x.tolist()
        return x

    def rank() -> list[Any]:
        if differs:
            with pytest.raises(dist.DistributedError, match=r"rank 1: all_reduce max .*call 251 of group"):
                summed()
            return []
        x = summed()
        (connection,) = get_group().connections()
        return [x.tolist(), connection.comparison.agreed, len(connection.comparison._board.columns)]

    results = dist.run_ranks(rank, RANKS, prefer="blind", timeout=60.0)
    expected = [[[float(RANKS)] * 2, 300, count] for count in (2, 2, 1)]
    assert results == ([[]] * RANKS if differs else expected)
    assert not [thread for thread in threading.enumerate() if thread.name == "tensorbus-relay"]
    assert fingerprint_relay._LAST_SECONDS == 5.0
