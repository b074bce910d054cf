"""Messages between ranks that are threads, objects, subgroups, and barriers that name who is missing."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist

from thread_communicators import thread_communicators

SIZE = 4


class _Blocking:
    """A communicator whose messages wait for their receivers, and which has nothing but the protocol."""

    def __init__(self, communicator: Any, rendezvous: Any) -> None:
        self._communicator = communicator

    def __getattr__(self, name: str) -> Any:
        if name == "exchange":
            raise AttributeError(name)
        return getattr(self._communicator, name)

    def send(self, x: Any, to: int) -> None:
        self._communicator.send(x, to)
        self._communicator.receive(tb.zeros(1, device=x.device), to)

    def receive(self, like: Any, source: int) -> Any:
        received = self._communicator.receive(like, source)
        self._communicator.send(tb.zeros(1, device=like.device), source)
        return received


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("ranks", [list(range(SIZE)), [2, 0, 3]])
def test_messages_at_once(device: str, ranks: list[int], blocking: bool) -> None:
    """Each rank sends two to every other rank, of several sizes, and lists what it receives in any order."""

    def exchange() -> dict[tuple[int, int], list[float]] | None:
        here, group = dist.get_rank(), dist.new_group(ranks)
        if group is None:
            return None
        others = [rank for rank in ranks if rank != here]
        out = [(to, n, tb.full((n, to + 1), 10.0 * here + n, device=device)) for to in others for n in (1, 2)]
        due = [(source, n, tb.zeros((n, here + 1), device=device)) for n in (1, 2) for source in others]
        sends = [dist.P2POp(dist.isend, x, to, group) for to, _, x in out]
        receives = [dist.P2POp(dist.irecv, y, source, group) for source, _, y in due]
        for work in dist.batch_isend_irecv(sends + receives if here % 2 else receives + sends):
            work.wait(60)
        record = dist.records()[-1]
        assert (record.operation, sorted(record.needs)) == ("batch_isend_irecv", sorted(others))
        return {(source, n): y.reshape((-1,)).tolist() for source, n, y in due}

    def run() -> list[Any]:
        return dist.run_ranks(exchange, SIZE, timeout=60, prefer="blocking" if blocking else None)

    if blocking:
        with thread_communicators("blocking", _Blocking):
            results = run()
    else:
        results = run()
    for here, received in enumerate(results):
        if here not in ranks:
            assert received is None
            continue
        assert received == {
            (source, n): [10.0 * source + n] * (n * (here + 1))
            for n in (1, 2) for source in ranks if source != here
        }  # fmt: skip


def test_lists_of_messages_that_make_no_sense(device: str) -> None:
    def rank() -> list[str]:
        x, group = tb.ones(1, device=device), dist.new_group()
        to = 1 - dist.get_rank()
        texts = []
        for make in (
            lambda: dist.batch_isend_irecv([]),
            lambda: dist.batch_isend_irecv([x]),
            lambda: dist.P2POp(dist.send, x, to),
            lambda: dist.P2POp(dist.isend, [x], to),
            lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, x, dist.get_rank())]),
            lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, x, to, g) for g in (group, None)]),
            lambda: dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, y, to) for y in (x, x.to("meta"))]
            ),
        ):  # fmt: skip
            with pytest.raises(tb.errors.ArgumentError) as raised:
                make()
            texts.append(str(raised.value))
        return texts

    (texts, _) = dist.run_ranks(rank, 2)
    for text, words in zip(
        texts,
        ("a list of P2POp is needed", "a list of P2POp is needed", "op must be distributed.isend or",
         "a tensor is needed", "would send to itself", "of one group", "one type of device"),
        strict=True,
    ):  # fmt: skip
        assert words in text


def test_objects() -> None:
    def rank() -> dict[str, Any]:
        here = dist.get_rank()
        mine = {"rank": here, "padding": "x" * here * 100}
        every: list[Any] = [None] * SIZE
        dist.all_gather_object(every, mine)
        at_root: list[Any] | None = [None] * SIZE if here == 2 else None
        dist.gather_object(mine, at_root, dst=2)
        handed_out: list[Any] = [None]
        objects = [("for", k, "y" * 50 * k) for k in range(SIZE)]
        dist.scatter_object_list(handed_out, objects if here == 1 else None, src=1)
        shared = [mine, here] if here == 3 else [None, None]
        dist.broadcast_object_list(shared, src=3)
        passed: list[Any] = [None, None]
        if here:
            assert dist.recv_object_list(passed, src=here - 1) == here - 1
        if here < SIZE - 1:
            dist.send_object_list([mine, None], dst=here + 1)
        pair = dist.new_group([3, 1])
        in_pair: list[Any] = [None, None]
        if pair is not None:
            dist.gather_object(here, in_pair if here == 1 else None, dst=1, group=pair)
        return {
            "every": [x["rank"] for x in every],
            "root": at_root and [len(x["padding"]) for x in at_root],
            "handed out": handed_out[0][:2],
            "shared": shared[1],
            "passed": passed[0] and passed[0]["rank"],
            "pair": in_pair,
        }

    for here, result in enumerate(dist.run_ranks(rank, SIZE, timeout=60)):
        assert result == {
            "every": [0, 1, 2, 3], "root": [0, 100, 200, 300] if here == 2 else None,
            "handed out": ("for", here), "shared": 3, "passed": here - 1 if here else None,
            "pair": [3, 1] if here == 1 else [None, None],
        }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dist.gather_object(1, None, dst=0), "given on rank dst, and nowhere else"),
        (lambda: dist.gather_object(1, [], dst=0), "needs 1 places, got 0"),
        (lambda: dist.scatter_object_list([], [1]), "needs a place"),
        (lambda: dist.scatter_object_list([None], [1, 2]), "needs 1 places, got 2"),
        (lambda: dist.all_gather_object([], 1), "needs 1 places, got 0"),
    ],
)
def test_lists_of_objects_that_do_not_fit(call: Any, message: str) -> None:
    with pytest.raises(tb.errors.ArgumentError, match=message):
        dist.run_ranks(call, 1)


def test_subgroups() -> None:
    def rank() -> Any:
        mine, every = dist.new_subgroups(2)
        odd, _ = dist.new_subgroups_by_enumeration([[3, 1], [0]])
        assert mine is not None
        assert mine in every
        assert dist.get_process_group_ranks() == [0, 1, 2, 3]
        for place, number in enumerate(mine.ranks):
            assert dist.get_global_rank(mine, place) == number
            assert dist.get_group_rank(mine, number) == place
        for call in (
            lambda: dist.get_global_rank(mine, 2), lambda: dist.get_group_rank(mine, 9),
            lambda: dist.new_subgroups(3), lambda: dist.new_subgroups_by_enumeration([[0, 1], [1]]),
        ):  # fmt: skip
            with pytest.raises(tb.errors.ArgumentError):
                call()
        total = dist.functional.all_reduce(tb.ones(1, device="cpu") * dist.get_rank(), group=mine).item()
        return dist.get_process_group_ranks(mine), total, odd and dist.get_process_group_ranks(odd)

    assert dist.run_ranks(rank, SIZE) == [
        ([0, 1], 1.0, [0]), ([0, 1], 1.0, [3, 1]), ([2, 3], 5.0, None), ([2, 3], 5.0, [3, 1]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("absent", "every", "named"),
    [([], False, ""), ([3, 1], False, "1"), ([3, 1], True, "1, 3"), ([0], False, "0")],
)
def test_a_barrier_that_names_who_is_missing(absent: list[int], every: bool, named: str) -> None:
    def rank() -> str:
        for _ in range(2):
            dist.monitored_barrier(timeout=60)
        if dist.get_rank() in absent:
            return "absent"
        try:
            dist.monitored_barrier(timeout=1.0 if absent else 60.0, wait_all_ranks=every)
        except dist.DistributedTimeoutError as error:
            return str(error).partition(" of ")[0]
        return ""

    text = f"monitored_barrier: rank {named}" if named else ""
    results = dist.run_ranks(rank, SIZE)
    assert results == ["absent" if r in absent else text for r in range(SIZE)]


@pytest.mark.parametrize("connected", [False, True])
def test_a_time_limit_of_a_group(device: str, connected: bool) -> None:
    """Before and behind the first collective, which connects its ranks."""

    def rank() -> None:
        patient, group = dist.new_group(), dist.new_group(timeout=0.3)
        assert (patient.timeout, group.timeout) == (60.0, 0.3)
        x = tb.ones(2, device=device)
        if connected:
            dist.all_reduce(x, group=group)
        if dist.get_rank() == 0:
            with pytest.raises(
                dist.DistributedTimeoutError, match=r"rank 1 did not come.*within 0\.3 seconds"
            ):
                dist.all_reduce(x, group=group)
        dist.monitored_barrier(patient)

    with pytest.raises(tb.errors.ArgumentError, match="new_group: timeout must be a number of seconds > 0"):
        dist.run_ranks(lambda: dist.new_group(timeout=0), 1)
    dist.run_ranks(rank, 2, timeout=60)
