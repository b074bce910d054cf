"""Collectives of ranks that are threads, on every device: values, derivatives, compiled, batched, errors."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import plugins

from error_bounds import assert_within, gamma

SIZE = 3
LENGTHS = (2, 0, 3)
ROUNDED = gamma(SIZE, "float32")  # sums over the ranks


def on_ranks(function: Callable[[int], Any], size: int = SIZE, **options: Any) -> list[Any]:
    return dist.run_ranks(lambda: function(dist.get_rank()), size, **options)


def values(rank: int, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return np.random.default_rng(rank).integers(1, 5, shape).astype(dtype)


REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda xs: xs.sum(0), "product": lambda xs: xs.prod(0), "min": lambda xs: xs.min(0),
    "max": lambda xs: xs.max(0), "average": lambda xs: xs.mean(0),
    "bitwise_and": np.bitwise_and.reduce, "bitwise_or": np.bitwise_or.reduce,
    "bitwise_xor": np.bitwise_xor.reduce,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64", "uint8"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions(device: str, reduction: str, dtype: str) -> None:
    if (reduction == "average" and "int" in dtype) or ("bitwise" in reduction and "float" in dtype):
        with pytest.raises(tb.DtypeError, match=f"'{reduction}' is not defined for {dtype}"):
            on_ranks(lambda r: dist.functional.all_reduce(tb.ones(2, dtype=dtype, device=device), reduction))
        return
    xs = np.stack([values(r, (SIZE * 2, 3), dtype) for r in range(SIZE)])
    right = REDUCTIONS[reduction](xs).astype(dtype)

    def rank(r: int) -> Any:
        x = tb.asarray(xs[r], device=device)
        part = dist.functional.reduce_scatter(x, reduction, axis=0)
        whole = dist.functional.all_reduce(x, reduction)
        dist.all_reduce(x, reduction)
        assert x.device == whole.device == part.device
        return x.numpy(), whole.numpy(), part.numpy()

    for r, (x, whole, part) in enumerate(on_ranks(rank)):
        for got in (x, whole):
            np.testing.assert_array_equal(got, right)
            assert got.dtype == right.dtype
        np.testing.assert_array_equal(part, right[2 * r : 2 * r + 2])


def _gather(x: Any, r: int) -> Any:
    return dist.functional.all_gather(x[:, : LENGTHS[r]], axis=1, lengths=LENGTHS)


def _exchange(x: Any, r: int) -> Any:
    return dist.functional.all_to_all(x, 0, 1, send_lengths=(3, 0, 1), receive_lengths=(5,) * SIZE)


OPS: dict[str, tuple[Callable[[Any, int], Any], Callable[[Any, int], Any]]] = {
    "all_reduce": (lambda x, r: dist.functional.all_reduce(x), lambda xs, r: xs.sum(0)),
    "average": (lambda x, r: dist.functional.all_reduce(x, "average"), lambda xs, r: xs.mean(0)),
    "all_gather": (
        _gather, lambda xs, r: np.concatenate([x[:, :n] for x, n in zip(xs, LENGTHS, strict=True)], 1),
    ),
    "reduce_scatter": (
        lambda x, r: dist.functional.reduce_scatter(x, axis=1, lengths=LENGTHS),
        lambda xs, r: np.split(xs.sum(0), np.cumsum(LENGTHS)[:-1], 1)[r],
    ),
    "all_to_all": (
        _exchange, lambda xs, r: np.concatenate([np.split(x, (3, 3), 0)[r] for x in xs], 1)
    ),
    "broadcast": (lambda x, r: dist.functional.broadcast(x, 1), lambda xs, r: xs[1]),
}  # fmt: skip


@pytest.mark.parametrize("way", ["eager", "compiled", "batched"])
@pytest.mark.parametrize("name", OPS)
def test_ops(device: str, name: str, way: str) -> None:
    """Values, and gradients of the sum of all ranks' results, weighed."""
    op, reference = OPS[name]
    examples = 2 if way == "batched" else 1
    xs = np.stack([np.random.default_rng(r).normal(size=(examples, 4, 5)) for r in range(SIZE)])
    xs = xs.astype("float32")
    right = [np.stack([reference(xs[:, k], r) for k in range(examples)]) for r in range(SIZE)]
    weights = [
        np.random.default_rng(9 + r).normal(size=y.shape).astype("float32") for r, y in enumerate(right)
    ]

    def rank(r: int) -> Any:
        f = lambda x: op(x, r)  # noqa: E731
        f = {"eager": f, "compiled": tb.compile(f, fullgraph=True), "batched": tb.vmap(f)}[way]
        x = tb.asarray(xs[r] if way == "batched" else xs[r, 0], device=device).requires_grad_()
        w = tb.asarray(weights[r] if way == "batched" else weights[r][0], device=device)
        for _ in range(2):
            x.grad = None
            y = f(x)
            (y * w).sum().backward()
        return y.numpy(), x.grad.numpy()

    results = on_ranks(rank)
    if way != "batched":
        right, weights = [y[0] for y in right], [w[0] for w in weights]
        xs = xs[:, 0]
    for r, (y, _) in enumerate(results):
        assert_within(y, right[r], ROUNDED * abs(xs).sum(0).max())
    if way == "batched":
        return
    step = np.random.default_rng(5).normal(size=xs.shape).astype("float32")
    moved = sum(float((reference(step, r) * weights[r]).sum()) for r in range(SIZE))  # the ops are linear
    along = sum(float((g * s).sum()) for (_, g), s in zip(results, step, strict=True))
    terms = sum(float((abs(g) * abs(s)).sum()) for (_, g), s in zip(results, step, strict=True))
    assert_within(along, moved, gamma(SIZE * 20, "float32") * terms)


def test_names_of_pytorch(device: str) -> None:
    def rank(r: int) -> dict[str, Any]:
        x = tb.full((2,), float(r), device=device)
        zeros = lambda *shape: tb.zeros(shape, device=device)  # noqa: E731
        out: dict[str, Any] = {}
        out["gathered"] = [zeros(k + 1) for k in range(SIZE)]
        dist.all_gather(out["gathered"], tb.full((r + 1,), float(r), device=device))
        out["into"] = zeros(SIZE, 2)
        dist.all_gather_into_tensor(out["into"], x)
        out["part"] = zeros(2)
        dist.reduce_scatter(out["part"], [x + k for k in range(SIZE)])
        out["average"] = zeros(1)
        dist.reduce_scatter_tensor(out["average"], tb.arange(3.0, device=device) + r, "avg")
        out["from all"] = [zeros(1) for _ in range(SIZE)]
        dist.all_to_all(
            out["from all"], [tb.full((1,), float(10 * r + k), device=device) for k in range(SIZE)]
        )
        out["single"] = zeros(SIZE)
        dist.all_to_all_single(out["single"], tb.arange(3.0, device=device) + 10 * r)
        out["root"] = x.clone()
        dist.broadcast(out["root"], src=2)
        out["reduced"] = x.clone()
        dist.reduce(out["reduced"], dst=1, op=dist.ReduceOp.MAX)
        out["to 1"] = [zeros(2) for _ in range(SIZE)] if r == 1 else []
        dist.gather(x, out["to 1"] or None, dst=1)
        out["from 1"] = zeros(2)
        dist.scatter(out["from 1"], [x + 5 * k for k in range(SIZE)] if r == 1 else None, src=1)
        work = dist.all_reduce(tb.ones(1, device=device), async_op=True)
        late = tb.ones(2, device=device) * r
        works = [dist.all_reduce(late, "max", async_op=True), dist.barrier(async_op=True)]
        for item in (work, *works):
            item.wait(60)
            assert item.is_completed()
        out["late"] = late.clone()
        if r:
            dist.recv(late, src=r - 1)
        if r < SIZE - 1:
            dist.send(late + 1, dst=r + 1)
        out["chain"] = late
        objects: list[Any] = [None] * SIZE
        dist.all_gather_object(objects, {"rank": r})
        shared = ["a", r] if r == 0 else [None, None]
        dist.broadcast_object_list(shared, src=0)
        return {key: _plain(v) for key, v in out.items()} | {"objects": objects, "shared": shared}

    for r, out in enumerate(on_ranks(rank)):
        assert out == {
            "gathered": [[0.0], [1.0, 1.0], [2.0, 2.0, 2.0]],
            "into": [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]],
            "part": [3.0 + 3 * r] * 2,
            "average": [r + 1.0],
            "from all": [[10.0 * k + r] for k in range(SIZE)],
            "single": [10.0 * k + r for k in range(SIZE)],
            "root": [2.0, 2.0],
            "reduced": [2.0, 2.0] if r == 1 else [float(r)] * 2,
            "to 1": [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]] if r == 1 else [],
            "from 1": [1.0 + 5 * r] * 2,
            "late": [2.0, 2.0],
            "chain": [2.0 + r] * 2,
            "objects": [{"rank": k} for k in range(SIZE)],
            "shared": ["a", 0],
        }


def _plain(value: Any) -> Any:
    return [x.tolist() for x in value] if isinstance(value, list) else value.tolist()


def test_groups(device: str) -> None:
    def rank(r: int) -> Any:
        group = dist.new_group([2, 0])
        again = dist.new_group([2, 0])
        if not group:
            return None
        assert (group.size, group.rank, dist.get_rank(group)) == (2, 0 if r == 2 else 1, group.rank)
        x = tb.full((1,), float(r), device=device)
        with pytest.raises(tb.errors.ArgumentError, match="rank 1 is not in the group"):
            dist.broadcast(x, src=1, group=group)
        return [dist.functional.all_gather(x, group=g).tolist() for g in (group, again)]

    assert on_ranks(rank) == [[[2.0, 0.0]] * 2, None, [[2.0, 0.0]] * 2]


def test_a_function_compiled_once_serves_all_ranks(device: str) -> None:
    def step(x: Any) -> Any:
        return dist.functional.all_reduce(x * 2).sum()

    compiled = tb.compile(step)
    alone = dist.run_ranks(lambda: compiled(tb.ones(3, device=device)).item(), 1)
    several = [on_ranks(lambda r: compiled(tb.ones(3, device=device) * r).item()) for _ in range(2)]
    assert alone == [6.0]
    assert several == [[18.0] * SIZE] * 2


def test_ranks_on_several_devices() -> None:
    kinds = ["cpu", "refdev"]

    def rank(r: int) -> Any:
        x = tb.full((2,), float(r + 1), device=kinds[r % 2])
        gathered = dist.functional.all_gather(x[:1])
        dist.all_reduce(x)
        assert x.device.type == gathered.device.type == kinds[r % 2]
        return x.tolist(), gathered.tolist()

    assert on_ranks(rank) == [([6.0, 6.0], [1.0, 2.0, 3.0])] * SIZE


class _HostOnly:
    """Connects threads by tensors in the host's memory."""

    def __init__(self, threads: Any) -> None:
        self.threads = threads

    def verdict(self, device_type: str, rendezvous: Any) -> bool | str:
        return device_type == "cpu" or "it connects the host's memory"

    def connect(self, rendezvous: Any) -> Any:
        return self.threads.connect(rendezvous)


@pytest.mark.parametrize("mode", ["error", "warn", "allow"])
def test_through_the_host_where_it_is_allowed(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    host_only = {"host only": _HostOnly(plugins.communicators()["threads"])}
    monkeypatch.setattr(plugins, "communicators", lambda: host_only)
    kinds = ["refdev", "cpu", "refdev"]

    def rank(r: int) -> Any:
        x = tb.full((SIZE,), float(r + 1), device=kinds[r])
        with tb.fallback(mode):
            total = dist.functional.all_reduce(x)
            work = dist.all_reduce(x, "max", async_op=True)
            work.wait()
            part = dist.functional.reduce_scatter(x)
            if r == 1:
                dist.send(x, dst=2)
            elif r == 2:
                dist.recv(x, src=1)
            dist.barrier()
        if kinds[r] != "cpu":  # what is refused is no failure of the group
            with pytest.raises(
                dist.DistributedError, match=r"all_reduce: host only connects the host's memory"
            ):
                dist.functional.all_reduce(x)
        assert dist.functional.all_reduce(tb.ones(1, device="cpu")).item() == SIZE
        assert {y.device.type for y in (total, part, x)} == {kinds[r]}
        return total.tolist(), part.tolist(), x.tolist(), dist.records()[0].communicator

    tb.fallback_counts(reset=True)
    if mode == "error":
        text = (
            r"nothing connects 3 ranks .* on cpu, refdev: .*refdev: it connects.*tensorbus.fallback\('warn'\)"
        )
        with pytest.raises(dist.DistributedError, match=text):
            on_ranks(rank)
        assert not tb.fallback_counts()
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert on_ranks(rank) == [([6.0] * SIZE, [9.0], [3.0] * SIZE, "host only")] * SIZE
    warned = {str(w.message).partition(":")[0] for w in caught if w.category is tb.FallbackWarning}
    assert warned == ({"all_reduce", "reduce_scatter", "recv"} if mode == "warn" else set())
    nbytes = SIZE * 4  # of x, on two ranks; results come back
    assert tb.fallback_counts() == {
        ("distributed::all_reduce", "refdev"): (4, 4 * 2 * nbytes),
        ("distributed::reduce_scatter", "refdev"): (2, 2 * (nbytes + 4)),
        ("distributed::recv", "refdev"): (1, nbytes),
    }


@pytest.mark.parametrize("first", [dist.barrier, lambda: dist.all_gather_object([0] * SIZE, 1)])
def test_through_the_host_over_what_connects_it_already(
    first: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank with tensors on the host asks nobody any more: others must not wait for its answer."""
    host_only = {"host only": _HostOnly(plugins.communicators()["threads"])}
    monkeypatch.setattr(plugins, "communicators", lambda: host_only)

    def rank(r: int) -> list[float]:
        first()
        x = tb.ones(2, device=("cpu", "refdev")[r % 2])
        if x.device.type == "refdev":
            with pytest.raises(dist.DistributedError, match="host only connects the host's memory"):
                dist.all_reduce(x)
        with tb.fallback("allow"):
            dist.all_reduce(x)
        return x.tolist()

    assert on_ranks(rank) == [[SIZE, SIZE]] * SIZE


def test_results_are_each_ranks_own(device: str) -> None:
    def rank(r: int) -> Any:
        x = tb.zeros(2, device=device)
        y = dist.functional.broadcast(x, 0)
        y += r
        dist.barrier()
        return x.tolist(), y.tolist()

    assert on_ranks(rank) == [([0.0, 0.0], [float(r)] * 2) for r in range(SIZE)]


def _raise(r: int) -> None:
    if r == 1:
        raise KeyError("mine")
    dist.barrier()


def _in_turn(other: bool) -> None:
    first, second = dist.new_group(), dist.new_group()
    for group in (second, first) if other else (first, second):
        dist.barrier(group) if group is second else dist.all_reduce(tb.ones(2, device="cpu"), group=group)


def _queue_after_the_end(r: int) -> None:
    dist.all_reduce(tb.ones(2, device="cpu"), async_op=True)
    if r == 1:
        raise KeyError("mine")
    with suppress(dist.DistributedError):
        while True:  # until the group has ended, and nobody takes what is queued
            dist.barrier()
    work = dist.all_reduce(tb.ones(2, device="cpu"), async_op=True)
    assert work is not None
    work.wait()


ERRORS: dict[str, tuple[Callable[[int], Any], type[Exception], str]] = {
    "a rank that raises": (_raise, KeyError, "mine"),
    "a rank that raises while others queue": (_queue_after_the_end, KeyError, "mine"),
    "a rank that does not come": (
        lambda r: r and dist.barrier(), dist.DistributedTimeoutError, "within 0.5 seconds",
    ),
    "a rank that stops coming": (
        lambda r: [dist.barrier() for _ in range(1 + (r != 1))], dist.DistributedTimeoutError,
        "barrier: rank 1 did not come within 0.5 seconds",
    ),
    "a rank that has finished": (
        lambda r: r or dist.barrier(), dist.DistributedError,
        r"barrier, call 1 of group 'world': rank \d will not come: its function has returned",
    ),
    "a rank that finished before the last call": (
        lambda r: [dist.barrier() for _ in range(1 + (r != 1))], dist.DistributedError,
        "barrier, call 2 of group 'world': rank 1 will not come: its function has returned",
    ),
    "ranks in collectives of two groups": (
        lambda r: _in_turn(r == 1), dist.DistributedError,
        r"wait for each other: rank 0: all_reduce sum of float32\[2\] on cpu:0, call 1 of group '0,1,2#1';"
        r" rank 1: barrier, call 1 of group '0,1,2#2'",
    ),
    "other collectives of which one does not wait": (
        lambda r: dist.broadcast(tb.ones(2, device="cpu"), 0) if r else dist.barrier(), dist.DistributedError,
        r"different things: rank 0: barrier.*rank 1: broadcast of float32\[2\] from place 0",
    ),
    "other shapes": (
        lambda r: dist.all_reduce(tb.ones(2 + r, device="cpu")), dist.DistributedError,
        r"different things: rank 0: all_reduce sum of float32\[2\] on cpu:0, call 1 .*; rank 1: .*\[3\]",
    ),
    "other operations": (
        lambda r: dist.barrier() if r else dist.all_reduce(tb.ones(2, device="cpu")),
        dist.DistributedError, "rank 1: barrier",
    ),
    "a length that does not divide": (
        lambda r: dist.functional.reduce_scatter(tb.ones(4, device="cpu")), tb.ShapeError,
        "4 is not divisible by 3 ranks",
    ),
    "a reduction that does not exist": (
        lambda r: dist.all_reduce(tb.ones(4, device="cpu"), "mean of"), tb.errors.ArgumentError,
        "one of sum, product",
    ),
    "a derivative that does not exist": (
        lambda r: dist.functional.all_reduce(tb.ones(4, device="cpu").requires_grad_(), "max")
        .sum().backward(),
        tb.errors.AutogradError, "'max' has no derivative",
    ),
    "no tensor": (
        lambda r: dist.all_gather([None] * SIZE, tb.ones(1, device="cpu")), tb.errors.ArgumentError,
        "all_gather: a tensor is needed, got NoneType",
    ),
    "a list": (lambda r: dist.functional.broadcast([1]), tb.errors.ArgumentError, "needed, got list"),
    "a group of nobody": (lambda r: dist.new_group([0, 7]), tb.errors.ArgumentError, "from 0 to 2"),
    "sending to oneself": (
        lambda r: dist.send(tb.ones(1, device="cpu"), dst=r), tb.errors.ArgumentError, "to itself",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    function, kind, text = ERRORS[name]
    options: dict[str, Any] = {"timeout": 0.5} if "rank that does" in name or "stops" in name else {}
    with pytest.raises(kind, match=text) as caught:
        on_ranks(function, **options)
    assert any(f"of {SIZE}" in note for note in caught.value.__notes__)


def test_a_communicator_that_nobody_has_is_told_before_ranks_begin() -> None:
    with pytest.raises(tb.errors.ArgumentError, match=r"'nobody'.* threads"):
        dist.run_ranks(dist.barrier, SIZE, prefer="nobody")


def test_without_ranks_it_is_said_how_to_get_some() -> None:
    with pytest.raises(dist.DistributedError, match=r"call tensorbus.distributed.init\(\) first"):
        dist.all_reduce(tb.ones(2, device="cpu"))


def test_one_rank_communicates_with_itself(device: str) -> None:
    dist.init()
    try:
        with pytest.raises(dist.DistributedError, match="rank 0 of 1 already"):
            dist.init()
        x = tb.ones(3, device=device).requires_grad_()
        y = dist.functional.all_gather(dist.functional.all_reduce(x, "average"))
        y.sum().backward()
        dist.barrier()
        assert (y.tolist(), x.grad.tolist()) == ([1.0] * 3, [1.0] * 3)
    finally:
        dist.shutdown()
    assert not dist.is_initialized()


def test_calls_are_recorded() -> None:
    def rank(r: int) -> Any:
        dist.all_reduce(tb.ones((2, 3), device="cpu"))
        dist.barrier()
        return [(c.operation, c.shapes, c.sequence, c.state, c.communicator) for c in dist.records()]

    assert on_ranks(rank)[0] == [
        ("all_reduce", ((2, 3),), 1, "done", "threads"), ("barrier", (), 2, "done", "threads"),
    ]  # fmt: skip


def test_nothing_stays_behind() -> None:
    def rank(r: int) -> None:
        dist.all_reduce(tb.ones(2, device="cpu"), async_op=True).wait()

    on_ranks(rank)
    gc.collect()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("rank-")], names
