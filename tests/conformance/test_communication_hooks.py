"""Hooks of ``replicate`` that average gradients: by each way to communicate, and those that come with it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn
from tensorbus.distributed.algorithms.ddp_comm_hooks import default_hooks
from tensorbus.errors import ArgumentError

from error_bounds import assert_alike, unit

X = tb.randn(8, 6, device="cpu")


class Counted:
    """A hook's state: what its buckets were."""

    def __init__(self) -> None:
        self.seen: list[Any] = []


def by_future(state: Counted, bucket: dist.GradBucket) -> Any:
    """Divide in place, and return the future of the sum."""
    shapes = [tuple(g.shape) for g in bucket.gradients()]
    assert shapes == [tuple(p.shape) for p in bucket.parameters()]
    state.seen.append((bucket.index(), bucket.is_last(), shapes))
    bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future()


def then(state: Any, bucket: dist.GradBucket) -> Any:
    """Divide the sum once it is there."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda known: known.value()[0] / dist.get_world_size())


def work(state: Any, bucket: dist.GradBucket) -> Any:
    """Return the handle of a collective."""
    return dist.all_reduce(bucket.buffer(), "avg", async_op=True)


def in_place(state: Any, bucket: dist.GradBucket) -> Any:
    """Wait for a collective."""
    dist.all_reduce(bucket.buffer(), "avg")
    return bucket.buffer()


def functional(state: Any, bucket: dist.GradBucket) -> Any:
    """Return an op's result."""
    return dist.functional.all_reduce(bucket.buffer(), "average")


EXACT: tuple[Any, ...] = (by_future, then, work, in_place, functional, default_hooks.allreduce_hook)
NARROW: dict[str, tuple[Any, Any]] = {
    "fp16_compress_hook": (default_hooks.fp16_compress_hook, tb.float16),
    "bf16_compress_hook": (default_hooks.bf16_compress_hook, tb.bfloat16),
    "fp16_compress_wrapper": (default_hooks.fp16_compress_wrapper(functional), tb.float16),
    "bf16_compress_wrapper": (default_hooks.bf16_compress_wrapper(then), tb.bfloat16),
}


def gradients(hook: Any, compiled: bool, copied: bool = False) -> list[Any]:
    """Return gradients of three batches, one without communication, the hook's buckets, and graph breaks."""
    tb.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(6, 5, device="cpu"), nn.Tanh(), nn.Linear(5, 3, device="cpu"))
    dist.replicate(model, bucket_cap_mb=1e-4)
    state = Counted() if hook is by_future else None
    if hook is not None:
        model.register_comm_hook(state, hook)
    model = deepcopy(model) if copied else model
    mine = X[4 * dist.get_rank() :][:4]

    def backward(x: tb.Tensor) -> None:
        model(x).square().sum().backward()

    run = tb.compile(backward) if compiled else backward
    run(mine)
    with model.no_sync():
        run(mine)
    run(mine)
    breaks = run.this_rank.breaks if compiled else []
    return [[p.grad.numpy() for p in model.parameters()], state and state.seen, breaks]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("hook", EXACT, ids=lambda hook: hook.__name__)
def test_hooks_average(hook: Any, compiled: bool) -> None:
    right = dist.run_ranks(gradients, 2, None, False)
    for rank, (got, seen, breaks) in enumerate(dist.run_ranks(gradients, 2, hook, compiled)):
        assert_alike(got, right[rank][0], roundings=64)  # three batches' sums, in programs in other orders
        if hook is by_future:
            assert seen == 2 * [(0, False, [(3,), (3, 5), (5,)]), (1, True, [(5, 6)])]
        if hook not in (by_future, then, work):  # a queued collective is none of a program
            assert not breaks


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", NARROW)
def test_compressed_gradients(name: str, compiled: bool) -> None:
    hook, dtype = NARROW[name]
    (mine, _, _), (other, _, _) = dist.run_ranks(gradients, 2, hook, compiled)
    right = dist.run_ranks(gradients, 2, None, False)[0][0]
    for a, b, exact in zip(mine, other, right, strict=True):
        assert (a == b).all()
        assert (tb.asarray(a).to(dtype).to("float32").numpy() == a).all()  # the last sum came in that dtype
        assert (a != exact).any()
        assert abs(a - exact).max() <= 8 * unit(dtype) * abs(exact).max()


def test_a_copy_has_the_hook() -> None:
    plain, copied = (dist.run_ranks(gradients, 2, then, False, copied) for copied in (False, True))
    for (mine, _, _), (other, _, _) in zip(plain, copied, strict=True):
        assert all((a == b).all() for a, b in zip(mine, other, strict=True))


MISTAKES: dict[str, Callable[[Any], object]] = {
    "a hook\\(state, bucket\\) is needed, got 3": lambda model: model.register_comm_hook(None, 3),
    "there is a hook already": lambda model: [model.register_comm_hook(None, then) for _ in range(2)],
    "a tensor of 12 elements or the future of one, got None": (
        lambda model: model.register_comm_hook(None, lambda state, bucket: None)
    ),
    "a tensor of 12 elements or the future of one, got a tensor of 1": (
        lambda model: model.register_comm_hook(None, lambda state, bucket: bucket.buffer().sum())
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message: str) -> None:
    def rank() -> None:
        model = dist.replicate(nn.Linear(3, 3, device="cpu"))
        MISTAKES[message](model)
        model(tb.ones((1, 3), device="cpu")).sum().backward()

    with pytest.raises(ArgumentError, match=message):
        dist.run_ranks(rank, 1)
