"""Messages between ranks that are threads, objects, subgroups, and barriers that name who is missing."""

from __future__ import annotations

from datetime import timedelta
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
        if name == "post_receive":
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
        if not group:
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


def test_messages_with_tags_and_from_any_rank(device: str) -> None:
    """They are matched by sender and tag, in the order in which the program asked, whoever waits first."""

    def rank() -> list[Any]:
        here, seen = dist.get_rank(), list[Any]()
        group = dist.new_group([2, 0, 1])
        x, y = (tb.zeros((1,) * 30, device=device) for _ in range(2))

        def send(value: int, to: int, tag: int = 0) -> None:
            dist.send(tb.full(x.shape, value, dtype="float32", device=device), to, group, tag)

        if here:
            send(here, 0)
            send(here * 10, 0, tag=5)
            send(here * 100, 0, tag=2**31 - 1)
        else:
            tagged = dist.irecv(x, 2, group, tag=5), dist.irecv(y, group_src=2, group=group, tag=5)
            seen += [tagged[0].wait(60), x.item(), tagged[1].wait(60), y.item()]
            seen += sorted((dist.recv(x, tag=2**31 - 1, group=group), x.item()) for _ in range(2))
            seen += sorted((dist.recv(x, None, group), x.item()) for _ in range(2))
        dist.barrier(group)
        if here == 0:
            first, second = dist.irecv(x, group=group), dist.irecv(y, 1, group)
        dist.barrier(group)
        if here == 1:  # what any rank may send is asked for first, and so has the first one
            send(1, 0)
            send(2, 0)
        if here == 0:
            seen += [second.wait(60), y.item(), first.wait(60), x.item()]
        dist.barrier(group)
        if here == 0:  # what was asked for first comes last
            late, early = dist.irecv(x, 1, group), dist.irecv(y, group=group)
            seen += [early.wait(60), y.item()]
            send(0, 1)
            seen += [late.wait(60), x.item()]
        elif here == 1:
            dist.recv(x, 0, group)
            send(8, 0)
        else:
            send(9, 0)
        dist.barrier(group)
        if here == 1:
            dist.send_object_list(["any", 1], 0, group)
        elif here == 0:
            objects = [None, None]
            seen += [dist.recv_object_list(objects, group=group), objects]
        place = group.rank
        ops = [
            dist.P2POp(dist.irecv, into, tag=tag, group=group, group_peer=(place - 1) % 3)
            for into, tag in ((x, 2), (y, 1))
        ]
        ops += [
            dist.P2POp(dist.isend, tb.full(x.shape, tag + 10.0 * place, device=device), None, group, tag,
                       (place + 1) % 3)
            for tag in (1, 2)
        ]  # fmt: skip
        for work in dist.batch_isend_irecv(ops):
            work.wait(60)
        return [*seen, x.item(), y.item()]

    results = dist.run_ranks(rank, 3, timeout=60)
    assert results == [
        [2, 20.0, 1, 10.0, (1, 100.0), (2, 200.0), (1, 1.0), (2, 2.0), 1, 2.0, 1, 1.0, 2, 9.0, 1, 8.0,
         1, ["any", 1], 2.0, 1.0],
        [12.0, 11.0],
        [22.0, 21.0],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: dist.recv(x, tag=-1), tb.errors.ArgumentError, "tag must be an int, .* got -1"),
        (lambda x: dist.send(x, tag="a"), tb.errors.ArgumentError, "tag must be an int, .* got 'a'"),
        (lambda x: dist.send(x), tb.errors.ArgumentError, "send: the other rank is needed"),
        (lambda x: dist.recv(x, 0, group_src=0), tb.errors.ArgumentError, "one of them is needed"),
        (lambda x: dist.recv(x, group_src=2), tb.errors.ArgumentError, "must be 0 to 1, got 2"),
        (
            lambda x: dist.recv(x, group=dist.new_subgroups(1)[0]), tb.errors.ArgumentError,
            "the group has no other rank that could send",
        ),
        (lambda x: dist.recv(x), dist.DistributedTimeoutError, "no rank sent anything within 0.3 seconds"),
        (
            lambda x: dist.recv(x, 1 - dist.get_rank(), tag=4), dist.DistributedTimeoutError,
            "rank . sent nothing with tag 4 within 0.3 seconds",
        ),
    ],
)  # fmt: skip
def test_messages_that_make_no_sense(call: Any, error: type[Exception], message: str, device: str) -> None:
    def rank() -> None:
        x = tb.ones(1, device=device)
        dist.all_reduce(x)
        with pytest.raises(error, match=message):
            call(x)
        dist.monitored_barrier(timeout=60)

    dist.run_ranks(rank, 2, timeout=0.3)


def test_messages_that_a_communicator_does_not_match() -> None:
    """One with nothing but the protocol has neither tags nor messages from any rank."""

    def rank() -> list[str]:
        texts, x, to = list[str](), tb.ones(1, device="cpu"), 1 - dist.get_rank()
        dist.all_reduce(x)
        for call in (
            lambda: dist.recv(x), lambda: dist.recv(x, to, tag=1), lambda: dist.send(x, to, tag=1),
            lambda: dist.batch_isend_irecv([dist.P2POp(dist.isend, x, to, tag=1)])[0].wait(),
        ):  # fmt: skip
            with dist_error() as raised:
                call()
            texts.append(str(raised.value))
        return texts

    dist_error = lambda: pytest.raises(dist.DistributedError)  # noqa: E731
    with thread_communicators("blocking", _Blocking):
        texts = dist.run_ranks(rank, 2, timeout=60, prefer="blocking")
    for text, what in zip(texts[0], ["any rank as its source", "a tag", "a tag", "a tag"], strict=True):
        assert text.startswith(f"distributed: a message with {what} was asked for"), texts


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
        if pair:
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
        return dist.get_process_group_ranks(mine), total, dist.get_process_group_ranks(odd)

    assert dist.run_ranks(rank, SIZE) == [
        ([0, 1], 1.0, [0]), ([0, 1], 1.0, [3, 1]), ([2, 3], 5.0, []), ([2, 3], 5.0, [3, 1]),
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
        assert dist.new_group(timeout=timedelta(minutes=2)).timeout == 120
        x = tb.ones(2, device=device)
        work = dist.all_reduce(x, group=patient, async_op=True)
        assert work is not None
        work.wait(timedelta(minutes=1))
        assert (work.is_success(), work.exception(), work.is_completed()) == (True, None, True)
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


def test_tensors_that_stand_for_others(device: str) -> None:
    """A collective with one result is done at once inside of vmap; others have no memory to send."""

    def rank() -> list[Any]:
        x, to = tb.ones((3, 2), device=device), 1 - dist.get_rank()
        mesh = dist.init_device_mesh(None, (2,))
        whole = dist.distribute_tensor(tb.ones(4, device=device), mesh, [dist.Shard(0)])

        def total(v: Any) -> Any:
            y = v * 1
            work = dist.all_reduce(y, async_op=True)
            assert work is not None
            work.wait(60)
            return y

        def gathered(v: Any) -> Any:
            dist.all_gather([v, v], v)
            return v

        for call in (lambda: dist.send(whole, to), lambda: tb.func.vmap(gathered)(x)):
            with pytest.raises(
                tb.ArgumentError, match=r"(send|all_gather): a tensor on (mesh|vmap):\d+ stands"
            ):
                call()
        return tb.func.vmap(total)(x).tolist()  # type: ignore[no-any-return]

    assert dist.run_ranks(rank, 2, timeout=60) == [[[2.0, 2.0]] * 3] * 2


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x, y: dist.all_gather([y, y], x), tb.errors.DtypeError,
            "all_gather: all tensors of a call, results too, have one dtype, got float32 and int64",
        ),
        (lambda x, y: dist.reduce_scatter(y, [x, x]), tb.errors.DtypeError, "reduce_scatter: all tensors"),
        (lambda x, y: dist.all_to_all([x, y], [x, x]), tb.errors.DtypeError, "all_to_all: all tensors of a"),
        (lambda x, y: dist.all_to_all_single(y, x), tb.errors.DtypeError, "all_to_all_single: all tensors"),
        (lambda x, y: dist.all_gather_into_tensor(y, x), tb.errors.DtypeError, "all_gather_into_tensor: all"),
        (lambda x, y: dist.gather(x, [x, y]), tb.errors.DtypeError, "gather: all tensors of a call"),
        (lambda x, y: dist.scatter(x, [x, y]), tb.errors.DtypeError, "scatter: all tensors of a call"),
        (
            lambda x, y: dist.all_gather([x, x.to("meta")], x), tb.errors.ArgumentError,
            "lie on one type of device, got .* and meta",
        ),
        (lambda x, y: dist.reduce_scatter(tb.ones((3, 2)), [x, x]), tb.errors.ShapeError, "must have 2 elem"),
        (
            lambda x, y: dist.all_to_all_single(tb.ones(5), tb.ones(4), [1, 1], [2, 2]), tb.errors.ShapeError,
            "all_to_all_single: the output must have 2 elements",
        ),
        (lambda x, y: dist.scatter(x, [x[:1], x[:1]]), tb.errors.ShapeError, "its place in the list"),
        (
            lambda x, y: dist.all_reduce(x > 0), tb.errors.DtypeError,
            "'sum' is not defined for bool. 'max' says whether any is true, 'min' whether all are",
        ),
    ],
)  # fmt: skip
def test_tensors_that_do_not_fit_each_other(call: Any, error: type[Exception], message: str) -> None:
    """Nothing is communicated, nor cast or broadcast."""

    def rank() -> list[bool]:
        x, y = tb.ones(2), tb.ones(2, dtype="int64")
        if dist.get_rank() == 0:
            with pytest.raises(error, match=message):
                call(x, y)
        some = tb.asarray([dist.get_rank() == 1, False])
        dist.all_reduce(some, "max")
        return some.tolist()  # type: ignore[no-any-return]

    with tb.device("cpu"):
        assert dist.run_ranks(rank, 2, timeout=60) == [[True, False]] * 2


def test_a_message_that_nobody_sends_keeps_no_rank(device: str) -> None:
    """Whoever asked for one and does not wait for it may leave; what is there already is still put down."""

    def rank() -> list[str]:
        x, y, to = tb.zeros(2, device=device), tb.zeros(2, device=device), 1 - dist.get_rank()
        dist.all_reduce(x)
        dist.isend(x + 1, to, tag=1)
        there, never = dist.irecv(y, to, tag=1), dist.irecv(x)
        dist.shutdown()
        there.wait(60)
        with pytest.raises(dist.DistributedError, match="the group was closed before the message came"):
            never.wait(60)
        return y.tolist()  # type: ignore[no-any-return]

    assert dist.run_ranks(rank, 2, timeout=3600) == [[1.0, 1.0]] * 2
