"""Ranks that each run another module of one shape are told so, before one reads the other's values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn

from thread_communicators import thread_communicators

RANKS = 2


def _mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4, device="cpu"), nn.Linear(4, 4, device="cpu"))


def _with_buffers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4, device="cpu"), nn.BatchNorm1d(4, device="cpu"))


def _hybrid(module: nn.Module) -> nn.Module:
    return dist.fully_shard(module, dist.init_device_mesh("cpu", (RANKS, 1)))


def _nested(module: nn.Module) -> nn.Module:
    for layer in module.children():
        dist.fully_shard(layer)
    return dist.fully_shard(module)


def _split(module: nn.Module) -> nn.Module:
    plan = {"0": dist.ColwiseParallel(), "1": dist.RowwiseParallel()}
    return dist.parallelize_module(module, dist.init_device_mesh("cpu", (RANKS,)), plan)


def _gathered(module: nn.Module) -> nn.Module:
    """Return the module with an output that is gathered: no layer sums."""
    plan = {"1": dist.ColwiseParallel(output_layouts=dist.Replicate())}
    return dist.parallelize_module(module, dist.init_device_mesh("cpu", (RANKS,)), plan)


def _moved(module: nn.Module) -> nn.Module:
    """Return the module with an input and an output that styles of it alone lay out."""
    whole, split = dist.Replicate(), dist.Shard(0)
    style = dist.PrepareModuleInput(input_layouts=split, desired_input_layouts=whole, use_local_output=True)
    return dist.parallelize_module(module, dist.init_device_mesh("cpu", (RANKS,)), style)


WAYS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], nn.Module], str]] = {
    "fully_shard": (_mlp, dist.fully_shard, r"all_gather .* and 1 more \(\w+\) of Sequential #1 .*#2 "),
    "fully_shard of layers": (_mlp, _nested, "all_gather .*, 'weight', 'bias' of Linear #1 .*Linear #3 "),
    "fully_shard, with copies": (_mlp, _hybrid, "all_reduce .*, gradients of .* of Sequential #1 .*#2,? "),
    "replicate": (_mlp, dist.replicate, "all_reduce .*, gradients of .* of Sequential #1, bucket 0 .*#2, "),
    "replicate, with buffers": (_with_buffers, dist.replicate, "broadcast .*, buffers of .* #1 .*#2 "),
    "rows": (_mlp, _split, "all_reduce .*, output of '1' of Sequential #1 .*#2 "),
    "columns": (_mlp, _gathered, "all_gather .*, output of '1' of Sequential #1 .*#2 "),
    "what goes in": (_mlp, _moved, "all_gather .*, input of Sequential #1 0 .*#2 0 "),
}


@contextmanager
def _communicator(compares: bool) -> Iterator[str]:
    """Yield the name of one that compares what ranks say, or of one to which they cannot say it."""
    if compares:
        yield "threads"
        return

    def deaf(right: Any, meeting: Any) -> Any:
        right.expect = None
        return right

    with thread_communicators("deaf", deaf):
        yield "deaf"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", WAYS)
def test_modules_of_one_shape(name: str, compiled: bool) -> None:
    make, spread, text = WAYS[name]

    def rank() -> str:
        modules = [spread(make()) for _ in range(2)]
        mine = modules[dist.get_rank()]

        def step(x: tb.Tensor) -> tb.Tensor:
            loss = mine(x).sum()
            loss.backward()
            return loss.detach()

        run = tb.compile(step) if compiled else step
        with pytest.raises(dist.DistributedError) as raised:
            run(tb.ones((2, 4), device="cpu")).item()
        return str(raised.value)

    first, second = dist.run_ranks(rank, RANKS)
    assert first == second
    assert first.startswith("the ranks ask for different things: rank 0: ")
    assert re.search(text, first), first


@pytest.mark.parametrize("compares", [True, False])
def test_who_is_told_when(compares: bool) -> None:
    """A communicator that is not told what is communicated has its ranks told at the next barrier."""

    def rank() -> Any:
        modules = [dist.fully_shard(_mlp()) for _ in range(2)]
        dist.barrier()
        errors = []
        for call in (lambda: modules[dist.get_rank()](tb.ones((2, 4), device="cpu")).tolist(), dist.barrier):
            try:
                call()
            except dist.DistributedError as error:
                errors.append(str(error))
            else:
                errors.append("")
        return errors

    with _communicator(compares) as name:
        reports = dist.run_ranks(rank, RANKS, prefer=name)
    values, barriers = zip(*reports, strict=True)
    assert all(bool(error) is compares for error in values), values
    assert all("Sequential #1" in error and "Sequential #2" in error for error in barriers), barriers


def test_copies_and_modules_of_other_names() -> None:
    """Copies have numbers of their own, and modules with other parameters each count by themselves."""

    def rank() -> list[str]:
        first, other = dist.fully_shard(_mlp()), dist.fully_shard(nn.Linear(4, 4, device="cpu"))
        if dist.get_rank():  # a copy that one rank alone makes changes no number of the others
            deepcopy(first)
        second = dist.fully_shard(_mlp())
        x = tb.ones((2, 4), device="cpu")
        for module in (first, other, second):
            module(x).sum().backward()
        dist.barrier()
        asked = [record.asked for record in dist.records() if record.operation == "all_gather"]
        return [*dict.fromkeys(text.rpartition(" of ")[2] for text in asked)]

    assert dist.run_ranks(rank, RANKS) == [["Sequential #1", "Linear #1", "Sequential #2"]] * RANKS


def test_modules_that_ranks_divide_in_another_order() -> None:
    """The first rank's values would become those of another parameter, where one is told from the other."""

    def rank() -> str:
        a, b = nn.Linear(4, 4, bias=False, device="cpu"), nn.Bilinear(1, 4, 4, bias=False, device="cpu")
        del b.weight
        b.scale = nn.Parameter(tb.ones((4, 4), device="cpu"))
        with pytest.raises(dist.DistributedError) as raised:
            dist.fully_shard((a, b)[dist.get_rank()])
        return str(raised.value)

    first, second = dist.run_ranks(rank, RANKS)
    assert first == second
    assert "'weight' of 'weight' of Linear #1" in first
    assert "'scale' of 'scale' of Bilinear #1" in first
