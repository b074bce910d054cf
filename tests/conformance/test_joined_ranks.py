"""Ranks with different numbers of batches train as one rank that has all of them, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn
from tensorbus.distributed.algorithms.ddp_comm_hooks import default_hooks
from tensorbus.distributed.algorithms.join import Join, Joinable, JoinHook
from tensorbus.errors import ArgumentError, DistributedError

from error_bounds import assert_alike

COUNTS = (1, 4, 2)
"""The batches of each rank: the first rank, whose buffers others take over, ends first."""
SIZE, MAX_STEPS = len(COUNTS), max(COUNTS)
DATA = tb.randn(SIZE, MAX_STEPS, 2, 4, 3, device="cpu")
"""For each rank and step two batches of four rows."""


class Net(nn.Module):
    """Layers, a parameter that no batch uses, and buffers of several dtypes that each run changes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 5, device="cpu"), nn.Linear(5, 2, device="cpu")
        self.never = nn.Parameter(tb.ones(2, device="cpu"))
        self.register_buffer("seen", tb.zeros((), device="cpu"))
        self.register_buffer("above", tb.zeros((2,), dtype=tb.bool, device="cpu"))
        self.register_buffer("runs", tb.zeros((), dtype=tb.int64, device="cpu"))

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return two numbers for each row."""
        if self.training:
            self.seen.copy_(self.seen * 0.5 + x.mean().detach())
            self.runs += 1
            self.above |= x.mean() > 0
        return self.b(tb.tanh(self.a(x)))


STATE = {name: value.clone() for name, value in Net().state_dict().items()}


def alone(divides_by_all: bool) -> list[Any]:
    """Return the state that one rank comes to, which does the batches of all."""
    model = Net()
    model.load_state_dict(STATE)
    model.never.requires_grad_(False)
    optimizer = tb.optim.SGD(model.parameters(), lr=0.1)
    own = [{name: x.clone() for name, x in model.named_buffers()} for _ in range(SIZE)]
    for step in range(MAX_STEPS):
        here = [rank for rank in range(SIZE) if COUNTS[rank] > step]
        for number in range(2):
            first = own[here[0]]
            for rank in here:  # a run that is averaged begins with buffers of the first rank that goes on
                for name, x in model.named_buffers():
                    x.copy_((first if number else own[rank])[name])
                loss = model(DATA[rank, step, number]).square().mean()
                (loss / (SIZE if divides_by_all else len(here))).backward()
                own[rank] = {name: x.clone() for name, x in model.named_buffers()}
        optimizer.step()
        optimizer.zero_grad()
    for name, x in model.named_buffers():
        x.copy_(own[here[-1]][name])
    return [x.numpy() for x in model.state_dict().values()]


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "those that go on": {"divides_by_all": False},
    "by a hook": {"hook": default_hooks.allreduce_hook},
    "unused": {"find_unused": True, "divides_by_all": False},
}


def train(
    compiled: bool, *, divides_by_all: bool = True, hook: Any = None, find_unused: bool = False
) -> list[Any]:
    """Return the state after the block, and after a step that all ranks do."""
    model: Any = Net()
    model.load_state_dict(STATE)
    model.never.requires_grad_(find_unused)
    dist.replicate(model, bucket_cap_mb=1e-4, find_unused_parameters=find_unused)
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = tb.optim.SGD(model.parameters(), lr=0.1)

    def step(x: tb.Tensor) -> None:
        with model.no_sync():
            model(x[0]).square().mean().backward()
        model(x[1]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    run = tb.compile(step, fullgraph=not find_unused) if compiled else step
    run(DATA[0, 0])
    model.load_state_dict(STATE)
    rank = dist.get_rank()
    with model.join(divide_by_initial_world_size=divides_by_all):
        for number in range(COUNTS[rank]):
            run(DATA[rank, number])
            model.eval()
            with tb.no_grad():
                model(DATA[rank, number, 0])  # which nobody averages
            model.train()
    state = [x.numpy().copy() for x in model.state_dict().values()]
    run(DATA[rank, 0])
    return [state, [x.detach().numpy() for x in model.parameters()]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_uneven_batches_are_those_of_one_rank(name: str, compiled: bool) -> None:
    right = alone(OPTIONS[name].get("divides_by_all", True))
    results = dist.run_ranks(lambda: train(compiled, **OPTIONS[name]), SIZE)
    for state, afterwards in results:
        assert_alike(state, right, roundings=256)  # two layers and their derivatives, in four steps
        assert all((a == b).all() for a, b in zip(afterwards, results[0][1], strict=True))


class _Shadow(JoinHook):
    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def main_hook(self) -> None:
        dist.all_reduce(tb.zeros(1, device="cpu"))

    def post_hook(self, is_last_joiner: bool) -> None:
        self.counter.was_last = is_last_joiner


class Counter(Joinable):
    """Counts runs on all ranks: a joinable of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.was_last = tb.zeros(1, device="cpu"), False
        self.group = dist.new_group()

    def __call__(self) -> None:
        """Count one on each rank that goes on."""
        Join.notify_join_context(self)
        one = tb.ones(1, device="cpu")
        dist.all_reduce(one)
        self.count += one

    def join_hook(self, **kwargs: Any) -> JoinHook:
        return _Shadow(self)

    @property
    def join_device(self) -> str:
        return "cpu"

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        return self.group


def test_joinables_of_a_users_own_beside_a_module() -> None:
    def rank() -> Any:
        model, counter = dist.replicate(nn.Linear(2, 1, device="cpu")), Counter()
        with Join([counter, model]):
            for _ in range(COUNTS[dist.get_rank()]):
                counter()
                model(tb.ones((1, 2), device="cpu")).sum().backward()
        return counter.count.item(), counter.was_last

    assert dist.run_ranks(rank, SIZE) == [(3.0, False), (7.0, True), (5.0, False)]


@pytest.mark.parametrize("compiled", [False, True])
def test_the_first_rank_that_ends_may_end_all(compiled: bool) -> None:
    def rank() -> str:
        model: Any = dist.replicate(nn.Linear(2, 1, device="cpu"))
        run = tb.compile(model) if compiled else model

        def steps() -> None:
            with model.join(throw_on_early_termination=True):
                for _ in range(1 + dist.get_rank()):
                    run(tb.ones((1, 2), device="cpu")).sum().backward()

        with pytest.raises(DistributedError) as caught:
            steps()
        return str(caught.value)

    mine, other = dist.run_ranks(rank, 2)
    assert mine.startswith("Join: rank 0 has no more batches, and others have")
    assert other.startswith("Join: rank 1 has batches left, and another has no more")


def test_a_block_that_is_none_and_one_that_an_error_ends() -> None:
    def rank() -> Any:
        model: Any = dist.replicate(nn.Linear(2, 1, device="cpu"))

        def steps(block: Any) -> None:
            with block:
                model(tb.ones((1, 2), device="cpu")).sum().backward()
                raise KeyError

        calls = []
        for block in (nullcontext(), model.join(enable=False), model.join()):
            before = len(dist.records())
            with pytest.raises(KeyError):
                steps(block)
            calls.append(len(dist.records()) - before)
        model(tb.ones((1, 2), device="cpu")).sum().backward()
        return calls

    assert dist.run_ranks(rank, 2) == [[1, 1, 3]] * 2


MISTAKES: dict[str, Callable[[Any], object]] = {
    r"got \['Linear'\]\. With modules that fully_shard": lambda model: Join([dist.fully_shard(model)]),
    "got none": lambda model: Join([]),
    "several groups": lambda model: Join(
        [
            dist.replicate(model),
            dist.replicate(nn.Linear(2, 1, device="cpu"), process_group=dist.new_subgroups(1)[0]),
        ]
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        dist.run_ranks(lambda: MISTAKES[message](nn.Linear(2, 1, device="cpu")), 2)
