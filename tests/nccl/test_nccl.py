"""The NCCL communicator's calls, over a stand-in for NCCL that moves bytes of the host between threads."""

from __future__ import annotations

import ctypes
import sys
import threading
import types
import weakref
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist

from nccl_stand_in import RANKS, Nccl, Pinned, nccl_communicators

pytest.importorskip("tensorbus_nccl", reason="tensorbus-nccl is not installed")


@pytest.fixture
def communicators(monkeypatch: pytest.MonkeyPatch) -> Any:
    return nccl_communicators(monkeypatch)


def _into(shape: tuple[int, ...], prepare: Any) -> Any:
    """Return what a call that is given memory puts there; None where it cannot be one."""
    out = tb.asarray(np.full(shape, -1, np.float32), device="cpu")
    give = prepare(out)
    if give is None:
        return None
    give()
    return out.tolist()


def _collectives(communicator: Any, rank: int) -> list[Any]:
    x = tb.arange(5, dtype="float32", device="cpu") + rank
    flags = tb.tensor([True, rank == 1], device="cpu")
    sizes = [(k + 1,) for k in range(RANKS)]
    parts = [x[: k + 1] for k in range(RANKS)]
    even = [x[::2] * k for k in range(RANKS)]
    after, before = (rank + 1) % RANKS, (rank - 1) % RANKS
    around = communicator.exchange([(x[::2], after), (x[:0], before)], [(x[:3], before), (x[:0], after)])
    return [
        [y.tolist() for y in around],
        communicator.all_reduce(x, "sum").tolist(),
        communicator.all_reduce(x, "max").tolist(),
        communicator.all_reduce(x.to("int32"), "max").tolist(),
        communicator.all_reduce(flags, "bitwise_and").tolist(),
        [y.tolist() for y in communicator.all_gather(x[: rank + 1], sizes)],
        communicator.reduce_scatter(parts, "sum").tolist(),
        communicator.reduce_scatter(even, "product").tolist(),
        [y.tolist() for y in communicator.all_to_all(parts, [sizes[rank]] * RANKS)],
        communicator.broadcast(x[::2], 2).tolist(),
        communicator.all_reduce(x[:0], "sum").tolist(),
        [y.tolist() for y in communicator.all_gather(x[::2], [(3,)] * RANKS)],
        communicator.reduce_scatter([x[1 + k : 2 + k] for k in range(RANKS)], "sum").tolist(),
        _into((5,), lambda out: communicator.all_reduce_into(x, "sum", out)),
        _into((15,), lambda out: communicator.all_gather_into(x, [5] * RANKS, out)),
        _into((3,), lambda out: communicator.all_gather_into(x[: 2 - rank], [2, 1, 0], out)),
        _into((1,), lambda out: communicator.reduce_scatter_into(x[:3], "sum", [1] * RANKS, out)),
        _into((rank,), lambda out: communicator.reduce_scatter_into(x[:3], "sum", [0, 1, 2], out)),
        _into((5,), lambda out: communicator.broadcast_into(x, 2, out)),
        _into((5,), lambda out: communicator.all_reduce_into(x, "max", out)),  # NaN must win
        _into((3,), lambda out: communicator.all_reduce_into(x[::2], "sum", out)),
    ]


def test_what_is_asked_of_nccl(communicators: Any) -> None:
    results: dict[int, Any] = {}

    def run(rank: int) -> None:
        communicator = communicators(rank)
        communicator.prepare(types.SimpleNamespace(type="cuda", index=0))
        results[rank] = _collectives(communicator, rank)
        assert communicator.problem() == ""
        two = tb.ones(2, device="cpu")
        for call in (communicator.all_gather, communicator.all_gather_flat):
            with pytest.raises(
                dist.DistributedError, match=r"this rank's part is float32\[2\], but \[3\] was"
            ):
                call(two, [(3,)] * RANKS)
        communicator.abort("it was asked for")
        with pytest.raises(dist.DistributedError, match="the group has ended: it was asked for"):
            communicator.all_reduce(tb.ones(2, device="cpu"), "sum")

    failures: list[BaseException] = []

    def guarded(rank: int) -> None:
        try:
            run(rank)
        except BaseException as error:
            failures.append(error)
            Nccl.meeting.abort()

    threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    x = [np.arange(5.0) + k for k in range(RANKS)]
    for rank in range(RANKS):
        assert results[rank] == [
            [x[rank - 1][::2].tolist(), []],
            [3.0, 6.0, 9.0, 12.0, 15.0],
            [2.0, 3.0, 4.0, 5.0, 6.0],
            [2, 3, 4, 5, 6],
            [True, False],
            [x[k][: k + 1].tolist() for k in range(RANKS)],
            sum(x)[: rank + 1].tolist(),
            (np.prod(x, axis=0)[::2] * rank**3).tolist(),
            [x[k][: rank + 1].tolist() for k in range(RANKS)],
            x[2][::2].tolist(),
            [],
            [y[::2].tolist() for y in x],
            [sum(x)[1 + rank]],
            sum(x).tolist(),
            np.concatenate(x).tolist(),
            [*x[0][:2], *x[1][:1]],
            [sum(x)[rank]],
            sum(x)[[0, 0, 1][rank] : [0, 1, 3][rank]].tolist(),
            x[2].tolist(),
            None,
            None,
        ]


def test_ranks_that_share_a_gpu_are_told(communicators: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL says that its usage is invalid, and no more."""
    cuda = sys.modules["cupy.cuda"]
    monkeypatch.setattr(cuda.runtime, "deviceGetPCIBusId", "0000:{:02}:00.0".format, raising=False)
    monkeypatch.setattr(Nccl, "__init__", lambda *_: (_ for _ in ()).throw(RuntimeError("invalid usage")))
    texts = ["", "", ""]

    def run(rank: int, index: int) -> None:
        with pytest.raises(dist.DistributedError, match="NCCL does not connect its 3 ranks: inv") as raised:
            communicators(rank).prepare(types.SimpleNamespace(type="cuda", index=index))
        texts[rank] = str(raised.value)

    ends = [threading.Thread(target=run, args=place) for place in enumerate((4, 5, 4))]
    for thread in ends:
        thread.start()
    for thread in ends:
        thread.join(30)
    assert "share" not in texts[1]
    for text in texts[::2]:
        assert (
            "Ranks 0 and 2 share the GPU 0000:04:00.0, here cuda:4; each needs its own: once init()" in text
        )


def test_messages_say_what_they_are(communicators: Any) -> None:
    """Whoever receives waits for none, and is told of one that is not what was asked for."""
    sender, receiver = communicators(0), communicators(1)
    connecting = [
        threading.Thread(target=each.prepare, args=(types.SimpleNamespace(type="cuda", index=0),))
        for each in (sender, receiver, communicators(2))
    ]
    for thread in connecting:
        thread.start()
    for thread in connecting:
        thread.join(20)
    like = tb.zeros((3,), dtype="float32", device="cpu")
    for k in range(3):
        sender.send(like + k, 1)
    sender.send(like[:0], 1)
    received = [receiver.receive(like, 0).tolist() for _ in range(3)]
    assert received == [[k] * 3 for k in (0.0, 1.0, 2.0)]
    assert receiver.receive(like[:0], 0).tolist() == []
    assert receiver.problem() == ""
    assert len(sender._heads) == 2
    sender.send(like, 1)
    sender.send(like, 1)
    other = receiver.receive(like.to("int32"), 0)
    assert other.shape == (3,)
    receiver.receive(like, 0)
    for _ in range(2):
        text = "recv: int32[3] was asked for, but what was sent is float32[3]"
        assert receiver.problem() == text
    receiver.close()
    assert receiver.problem() == ""


def test_heads_of_messages_are_of_the_stream_that_sends_them(
    communicators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing orders another stream behind what made one, nor its end behind what another stream reads."""
    import cupy
    from tensorbus_nccl import communicator

    streams = [types.SimpleNamespace(ptr=k) for k in (5, 6)]
    current = [streams[0]]
    made_in: dict[int, tuple[Any, int]] = {}
    sent: list[tuple[int, int]] = []

    def packed(x: tb.Tensor) -> tuple[tb.Tensor, int]:
        packed, address = pack(x)
        made_in[address] = packed, current[0].ptr
        return packed, address

    def send(self: Any, source: int, count: int, kind: int, to: int, stream: int) -> None:
        assert made_in[source][1] == stream
        sent.append((source, stream))

    pack = communicator._packed
    monkeypatch.setattr(cupy.cuda, "get_current_stream", lambda index: current[0])
    monkeypatch.setattr(communicator, "_packed", packed)
    monkeypatch.setattr(communicator, "_HEADS", 3)
    monkeypatch.setattr(Nccl, "send", send, raising=False)
    ends = [communicators(rank) for rank in range(RANKS)]
    connecting = [
        threading.Thread(target=end.prepare, args=(types.SimpleNamespace(type="cuda", index=0),))
        for end in ends
    ]
    for thread in connecting:
        thread.start()
    for thread in connecting:
        thread.join(20)
    for size in (0, 0, 1, 0):
        for current[0] in streams:
            ends[0].send(tb.zeros((size,), dtype="float32", device="cpu"), 1)
    assert len(sent) == 8 + 2
    assert len({source for source, _ in sent[:4]}) == 2  # the same ones again
    assert sent[0] == sent[2]
    assert {number for _, number in ends[0]._heads} <= {5, 6}
    assert len(ends[0]._heads) <= 3


class _Event:
    """What says of each look whether a message is there, or that work before it failed."""

    def __init__(self, *looks: bool | tb.DeviceError) -> None:
        self.looks = [*looks]
        self.meanwhile: Any = None

    def is_done(self) -> bool:
        if self.meanwhile is not None:
            thread = threading.Thread(target=self.meanwhile)
            thread.start()
            thread.join(20)
            assert not thread.is_alive()
        look = self.looks.pop(0)
        if isinstance(look, tb.DeviceError):
            raise look
        return look


def test_heads_are_looked_at_once_they_are_there() -> None:
    """Errors of the GPU are told, and while one thread asks it others may ask for messages."""
    from tensorbus_nccl.arrivals import HEAD, Arrivals, head_of

    def arrived(spec: str) -> Any:
        memory = Pinned(HEAD)
        ctypes.memmove(memory.ptr, head_of(spec), HEAD)
        return memory

    arrivals, first, second = Arrivals(), _Event(False, True), _Event(tb.DeviceError("a kernel trapped"))
    first.meanwhile = lambda: arrivals.expect(_Event(True), arrived("int32[2]"), "int32[1]", None)
    arrivals.expect(first, arrived("int32[3]"), "int32[3]", None)
    assert arrivals.problem() == ""
    arrivals.expect(second, arrived(""), "int32[4]", None)
    for text in ("int32[1] was asked for, but what was sent is int32[2]",) * 2:
        assert arrivals.problem() == f"recv: {text}"
    assert not first.looks
    arrivals = Arrivals()
    arrivals.expect(second, arrived(""), "int32[4]", None)
    for text in ("int32[4] did not come, since work before it failed: a kernel trapped",) * 2:
        assert arrivals.problem() == f"recv: {text}"


def _connect(ends: list[Any]) -> None:
    where = types.SimpleNamespace(type="cuda", index=0)
    threads = [threading.Thread(target=end.prepare, args=(where,)) for end in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)


@pytest.mark.parametrize("waits", [False, True])
def test_an_abort_comes_between_calls(
    communicators: Any, monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """NCCL gives back what another thread would be using; but a call that waits for ever is ended by it."""
    ends = [communicators(rank) for rank in range(RANKS)]
    _connect(ends)
    order: list[str] = []
    inside, aborted = threading.Event(), threading.Event()

    def reduce(self: Any, *values: int) -> None:
        order.append("call")
        inside.set()
        aborted.wait(20.0 if waits else 0.2)
        order.append("return")

    def abort(self: Any) -> None:
        order.append("abort")
        aborted.set()

    monkeypatch.setattr(Nccl, "allReduce", reduce, raising=False)
    monkeypatch.setattr(Nccl, "abort", abort)
    x = tb.ones(2, device="cpu")
    calling = threading.Thread(target=ends[0].all_reduce, args=(x, "sum"))
    calling.start()
    assert inside.wait(20)
    ends[0].abort("it was asked for")
    calling.join(20)
    assert order == (["call", "abort", "return"] if waits else ["call", "return", "abort"])
    with pytest.raises(dist.DistributedError, match="the group has ended: it was asked for"):
        ends[0].all_reduce(x, "sum")
    assert order.count("call") == 1


def test_memory_is_there_before_messages_are_asked_for(
    communicators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What allocates may wait for the device, which then waits for the sender already."""
    import cupy
    from tensorbus_nccl import communicator

    ends = [communicators(rank) for rank in range(RANKS)]
    _connect(ends)
    order: list[str] = []

    def noted(call: Any) -> Any:
        return lambda *arguments: (order.append("memory"), call(*arguments))[1]

    def queue(self: Any, name: str, *values: int) -> None:
        order.append(name)
        queue_as_is(self, name, *values)

    queue_as_is = Nccl._queue
    monkeypatch.setattr(Nccl, "_queue", queue)
    monkeypatch.setattr(communicator, "device_empty", noted(communicator.device_empty))
    monkeypatch.setattr(cupy.cuda, "alloc_pinned_memory", noted(Pinned))
    x = tb.arange(3, dtype="float32", device="cpu")
    ends[0].send(x, 1)
    order.clear()
    assert ends[1].receive(tb.zeros_like(x), 0).tolist() == x.tolist()
    assert order == ["memory"] * 3 + ["recv"] * 2


def test_heads_of_a_batch_live_until_they_are_sent(
    communicators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is pushed out by the next would be memory of something else by then."""
    from tensorbus_nccl import communicator

    ends = [communicators(rank) for rank in range(RANKS)]
    _connect(ends)
    heads: list[Any] = []
    alive: list[list[bool]] = []

    def head(self: Any, session: Any, x: tb.Tensor) -> Any:
        says = head_as_is(self, session, x)
        heads.append(weakref.ref(says[0]))
        return says

    head_as_is = communicator.Communicator._head
    monkeypatch.setattr(communicator.Communicator, "_head", head)
    monkeypatch.setattr(communicator, "_HEADS", 1)
    monkeypatch.setattr(
        communicator.Communicator, "_together",
        lambda self, *messages: alive.append([each() is not None for each in heads]),
    )  # fmt: skip
    x = tb.arange(3, dtype="float32", device="cpu")
    ends[0].exchange([(x[:k], 1) for k in range(3)], [])
    assert alive[0] == [True] * 3
    assert len(ends[0]._heads) == 1
