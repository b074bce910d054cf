"""Calls of a group in flight: messages asked for in any order, several threads, ends, and limits of time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.distributed.process_group.roll_call import STALLED
from tensorbus.distributed.process_group.world import current, in_world

from thread_communicators import thread_communicators

SIZE = 3


def _full(value: float) -> tb.Tensor:
    return tb.full((2,), value, device="cpu")


def _others() -> list[int]:
    return [rank for rank in range(SIZE) if rank != dist.get_rank()]


def _asks_first() -> list[float]:
    """Ask for all messages before any is sent, and send beside a collective that waits."""
    here, received = dist.get_rank(), {k: _full(-1) for k in _others()}
    handles = [dist.irecv(x, k) for k, x in received.items()]
    total = _full(here)
    reduction = dist.all_reduce(total, async_op=True)
    handles += [dist.isend(_full(10 * here + k), k) for k in _others()]
    for handle in [*reversed(handles), reduction]:
        assert handle is not None
        handle.wait()
    assert total.tolist() == [3.0, 3.0]
    return [received[k].tolist()[0] - (10 * k + here) for k in received]


def _in_order() -> list[float]:
    """Ask one rank for many messages, the first before the group is connected."""
    to, source = (dist.get_rank() + 1) % SIZE, (dist.get_rank() - 1) % SIZE
    received = [_full(-1) for _ in range(20)]
    handles = [dist.irecv(x, source) for x in received[:10]]
    for root in range(SIZE):  # moves parts between two ranks as well, which are no messages
        is_root, part = dist.get_rank() == root, _full(-1)
        parts = [_full(100 + k) for k in range(SIZE)]
        dist.scatter(part, parts if is_root else None, root)
        dist.gather(part + 1, parts if is_root else None, root)
        assert not is_root or [x.tolist()[0] for x in parts] == [101.0, 102.0, 103.0]
    for k in range(20):
        dist.isend(_full(k), to)
    for x in received[10:]:
        dist.recv(x, source)
    for handle in handles:
        handle.wait()
    return [x.tolist()[0] - k for k, x in enumerate(received)]


def _leaves_at_once() -> list[float]:
    """Leave with a message and a collective under way, while others come late."""
    dist.barrier()
    x, message = _full(1), _full(7)
    work = dist.all_reduce(x, async_op=True)
    if dist.get_rank() == 0:
        for k in _others():
            dist.isend(message, k)
        dist.shutdown()
        return [0.0]
    time.sleep(0.3)
    dist.recv(message.zero_(), 0)
    assert work is not None
    work.wait()
    return [x.tolist()[0] - SIZE, message.tolist()[0] - 7]


def _in_threads() -> list[float]:
    """Call collectives of one group in several threads: each is called once, and by no two at once."""
    world, totals = current(), []

    def work(value: int) -> None:
        with in_world(world):
            for _ in range(50):
                x = _full(value)
                dist.all_reduce(x)
                totals.append(x.tolist()[0])

    threads = [threading.Thread(target=work, args=(10**k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [sum(totals) - SIZE * 50 * 111, len(totals) - 150]


def _closes_twice() -> list[float]:
    group = dist.new_group()
    assert group
    dist.barrier(group)
    for _ in range(2):
        group.close()
    with pytest.raises(dist.DistributedError, match="has ended: the group was closed"):
        dist.barrier(group)
    return [0.0]


@pytest.mark.parametrize("program", [_asks_first, _in_order, _leaves_at_once, _in_threads, _closes_twice])
def test_calls_in_flight(program: Callable[[], list[float]]) -> None:
    for differences in dist.run_ranks(program, SIZE, timeout=30):
        assert differences
        assert not any(differences)


@pytest.mark.parametrize("timeout", [None, "5", True, 0, -1.0, float("nan")])
def test_limits_of_time_are_numbers(timeout: Any) -> None:
    for call in (
        lambda: dist.run_ranks(dist.get_rank, 2, timeout=timeout),
        lambda: dist.init(timeout=timeout),
    ):
        with pytest.raises(tb.ArgumentError, match=r"number of seconds > 0, got .*; float\('inf'\) waits"):
            call()
    assert not dist.is_initialized()


@pytest.mark.parametrize("timeout", [float("inf"), 1e300])
def test_waiting_for_as_long_as_it_takes(timeout: float) -> None:
    def rank() -> list[float]:
        x = _full(1)
        if dist.get_rank():
            time.sleep(0.2)
        dist.all_reduce(x)
        return x.tolist()  # type: ignore[no-any-return]

    assert dist.run_ranks(rank, 2, timeout=timeout) == [[2.0, 2.0]] * 2


@pytest.mark.parametrize("ranks", [[], [0, 0], [0, 2], [-1], [0.0, 1.0], ["0"], 1])
def test_ranks_of_a_group_are_numbers(ranks: Any) -> None:
    with pytest.raises(tb.ArgumentError, match="ranks must be different numbers from 0 to 1, got"):
        dist.run_ranks(dist.new_group, 2, ranks)


def test_a_rank_that_combines_is_not_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """All have come in time: nobody is missing while what they contribute is combined."""
    from tensorbus_threads import communicator

    def slow(xs: Any, reduction: str) -> tb.Tensor:
        time.sleep(2.5)
        return combine(xs, reduction)

    combine = communicator.combined
    monkeypatch.setattr(communicator, "combined", slow)

    def rank() -> list[float]:
        dist.barrier()
        x = _full(1)
        dist.all_reduce(x)
        return x.tolist()  # type: ignore[no-any-return]

    assert dist.run_ranks(rank, 2, timeout=2.0) == [[2.0, 2.0]] * 2


def test_a_rank_whose_call_goes_on_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait for it elsewhere, and what they see of it does not change for a while."""
    from tensorbus_threads import communicator

    def slow(xs: Any, reduction: str) -> tb.Tensor:
        time.sleep(3.0 if len(xs) < SIZE else 0.0)
        return combine(xs, reduction)

    combine = communicator.combined
    monkeypatch.setattr(communicator, "combined", slow)

    def rank() -> list[float]:
        x, pair = _full(1), dist.new_group([1, 2])
        dist.barrier()
        if pair:
            dist.all_reduce(x, group=pair)
        dist.all_reduce(x)
        return x.tolist()  # type: ignore[no-any-return]

    assert dist.run_ranks(rank, SIZE, timeout=60) == [[5.0, 5.0]] * SIZE


def test_messages_have_lanes_only_where_the_host_waits_for_them() -> None:
    """What works in a device's stream keeps the order of the program, the first message included."""
    calls: dict[int, list[str]] = {0: [], 1: []}

    def change(right: Any, meeting: Any) -> Any:
        here = calls[meeting.rank]
        right.queues = True
        send, receive = right.send, right.complete_receive
        right.send = lambda x, to: (here.append("send"), send(x, to))[1]
        right.complete_receive = lambda posted, like: (here.append("recv"), receive(posted, like))[1]
        return right

    def rank() -> list[float]:
        here, x = dist.get_rank(), _full(-1)
        first = [dist.isend(_full(here), 1 - here), dist.irecv(x, 1 - here)]
        for work in [*first, dist.isend(_full(5), 1 - here), dist.irecv(_full(0), 1 - here)]:
            work.wait()
        return x.tolist()  # type: ignore[no-any-return]

    with thread_communicators("queueing", change) as name:
        assert dist.run_ranks(rank, 2, prefer=name, timeout=30) == [[1.0, 1.0], [0.0, 0.0]]
    assert [*calls.values()] == [["send", "recv"] * 2] * 2


def test_an_interrupt_while_ranks_are_started_ends_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        if thread.name == f"rank-{SIZE - 1}":
            raise KeyboardInterrupt
        begin(thread)
        started.append(thread)

    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        dist.run_ranks(dist.barrier, SIZE, timeout=600)
    ranks = [thread for thread in started if thread.name.startswith("rank-")]
    for thread in ranks:
        thread.join(30)
    assert len(ranks) == SIZE - 1
    assert not any(thread.is_alive() for thread in ranks)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_fork_of_a_rank_is_none() -> None:
    def rank() -> int:
        dist.barrier()
        child = os.fork()
        if child == 0:
            os._exit(dist.is_initialized())
        return os.waitpid(child, 0)[1]

    assert dist.run_ranks(rank, 1) == [0]


class _Slow:
    """A rank's end whose collectives give their results late on one rank."""

    def __init__(self, end: Any, seconds: float) -> None:
        self._end, self._seconds, self._aborted = end, seconds, threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._end, name)

    def broadcast(self, x: Any, root: int) -> Any:
        result = self._end.broadcast(x, root)
        if self._aborted.wait(self._seconds):
            raise dist.DistributedError("slow: aborted.")
        return result

    def abort(self, reason: str) -> None:
        self._aborted.set()
        self._end.abort(reason)


@pytest.mark.parametrize("is_left", [False, True])
def test_a_rank_that_has_sent_all_may_leave(is_left: bool) -> None:
    """Those that are slower are not told that it will not come; but of what it has not sent they are."""

    def rank() -> float:
        x = tb.full((2,), dist.get_rank() + 1.0, device="cpu")
        dist.broadcast(x, 0)
        if is_left and dist.get_rank() == 1:
            dist.broadcast(x, 0)
        return x[0].item()

    with thread_communicators(
        "slow", lambda end, meeting: _Slow(end, 2.5 * STALLED if meeting.rank == 1 else 0)
    ) as name:
        if not is_left:
            assert dist.run_ranks(rank, 2, prefer=name) == [1.0, 1.0]
            return
        with pytest.raises(dist.DistributedError, match=r"call 2 .*rank 0 will not come: its function has"):
            dist.run_ranks(rank, 2, prefer=name)
