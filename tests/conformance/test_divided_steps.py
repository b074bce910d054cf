"""Divided modules give what one rank gives: whatever their parameters are, and whatever a step breaks off."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn, optim

from error_bounds import assert_alike

X = tb.randn(60, 6, device="cpu")
PARAMETERS = {
    "less than ranks": "", "without elements": "empty", "of several dtypes": "dtypes",
    "some frozen": "frozen", "a layer frozen": "layer frozen",
    "tied": "tied", "never used": "unused", "used twice": "twice",
    "ignored": "ignored", "many at once": "frozen dtypes tied twice empty unused",
}  # fmt: skip
STEPS = ("whole", "forward raises", "no backward", "no gradients", "backward raises", "a layer is left out")


class Net(nn.Module):
    """Two layers, and parameters of the kinds that are named."""

    def __init__(self, kinds: str) -> None:
        super().__init__()
        tb.manual_seed(0)
        self.kinds, self.fails, self.short = kinds, False, False
        self.a, self.b = nn.Linear(6, 7, device="cpu"), nn.Linear(7, 6, device="cpu")
        self.one = nn.Parameter(tb.ones((1,), device="cpu"))
        if "empty" in kinds:
            self.rows = nn.Parameter(tb.zeros((0, 3), device="cpu"))
            self.columns = nn.Parameter(tb.zeros((3, 0), device="cpu"))
        if "dtypes" in kinds:
            self.wide = nn.Parameter(tb.ones((5,), device="cpu", dtype="float64"))
        if "frozen" in kinds:
            self.a.weight.requires_grad_(False)
        if "layer frozen" in kinds:
            self.a.requires_grad_(False)
        if "tied" in kinds:
            self.tokens, self.head = (
                nn.Embedding(5, 6, device="cpu"),
                nn.Linear(6, 5, bias=False, device="cpu"),
            )
            self.head.weight = self.tokens.weight
        if "unused" in kinds:
            self.never = nn.Linear(3, 3, device="cpu")
        self.own = nn.Parameter(tb.full((6,), 2.0, device="cpu")) if "ignored" in kinds else None

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return a row of six, or five, for each row of six."""
        h = tb.zeros((len(x), 7), device="cpu") if self.short else tb.tanh(self.a(x))
        if self.fails:
            raise InterruptedError
        h = self.b(h) * self.one
        if "twice" in self.kinds:
            h = self.b(tb.tanh(self.a(h)))
        if "empty" in self.kinds:
            h = h + self.rows.sum() + self.columns.sum()
        if "dtypes" in self.kinds:
            h = h * self.wide.mean().to("float32")
        if self.own is not None:
            h = h * self.own
        if "tied" in self.kinds:
            h = self.head(h + self.tokens(tb.arange(len(x), device="cpu") * 0 + 3))
        return h


def broken_off(model: Net, x: tb.Tensor, step: str) -> None:
    """Do a part of a step, and forget it."""
    if step == "forward raises":
        model.fails = True
        with contextlib.suppress(InterruptedError):
            model(x)
        model.fails = False
    elif step == "no backward":
        model(x)
    elif step == "no gradients":
        with tb.no_grad():
            model(x)
    elif step == "backward raises":
        out = model(x)
        out.register_hook(lambda g: 1 // 0)
        with contextlib.suppress(ZeroDivisionError):
            (out**2).mean().backward()


def trained(ranks: int, kinds: str, step: str, reshard: bool, nested: bool, sync: bool) -> list[Any]:
    """Train on all rows; return losses and sums of parameters. No rank: not divided."""

    def rank() -> Any:
        model = Net(kinds)
        ignored = [] if model.own is None else [model.own]
        if ranks:
            for module in (model.a, model.b, model) if nested else (model,):
                dist.fully_shard(module, reshard_after_forward=reshard, ignored_params=ignored)
        taught = [p for p in model.parameters() if not any(p is x for x in ignored)]
        update = optim.SGD(taught, lr=0.01, momentum=0.9)
        count = max(ranks, 1)
        x = X[60 // count * dist.get_rank() : 60 // count * (dist.get_rank() + 1)]
        losses = []
        for number in range(4):
            if number == 1:
                broken_off(model, x, step)
                update.zero_grad()
                model.short = step == "a layer is left out"
            if not sync:
                if ranks:
                    model.set_requires_gradient_sync(False)
                (model(x) ** 2).mean().backward()
                if ranks:
                    model.set_requires_gradient_sync(True)
            loss = (model(x) ** 2).mean()
            loss.backward()
            update.step()
            update.zero_grad()
            model.short = False
            losses.append(dist.functional.all_reduce(loss.detach(), "average"))
        whole = [p.full_tensor() if isinstance(p, dist.DTensor) else p.detach() for p in taught]
        return [x.to("float64").sum().item() for x in [*losses, *whole]]

    first, *others = dist.run_ranks(rank, max(ranks, 1))
    assert all(other == first for other in others)
    return list(first)


CASES = [(kinds, "whole") for kinds in PARAMETERS] + [("less than ranks", step) for step in STEPS[1:]]


@pytest.mark.parametrize("ranks", [2, 5, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 3, 4))])
@pytest.mark.parametrize(("name", "step"), CASES)
def test_as_one_rank(name: str, step: str, ranks: int) -> None:
    for reshard, nested, sync in ((True, True, True), (False, True, False), (True, False, False)):
        alone = trained(0, PARAMETERS[name], step, reshard, nested, sync)
        divided = trained(ranks, PARAMETERS[name], step, reshard, nested, sync)
        assert_alike(divided, alone, 256)  # what four steps add up, of 60 rows
