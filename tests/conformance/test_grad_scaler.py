"""Losses that are scaled train as others do; what overflows on one rank is left out on all."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn, optim
from tensorbus.errors import ArgumentError, DtypeError, StateError

from error_bounds import assert_alike

X = tb.randn(4, 6, device="cpu")
ROUNDINGS = 1 << 8


def layers(device: str) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5, device=device), nn.Tanh(), nn.Linear(5, 3, device=device))


STATE = layers("cpu").state_dict()


def net(device: str) -> nn.Sequential:
    model = layers(device)
    model.load_state_dict(STATE)
    return model


def divided(model: nn.Sequential) -> nn.Sequential:
    """Divide the layers, and the whole, whose first bias each rank has."""
    dist.fully_shard(model[2])
    return dist.fully_shard(model)


SPREADS: dict[str, tuple[int, Callable[[nn.Sequential], nn.Sequential]]] = {
    "alone": (1, lambda model: model),
    "replicated": (2, dist.replicate),
    "in parts": (2, divided),
}


def train(spread: Callable[[nn.Sequential], nn.Sequential], device: str, compiled: bool) -> list[Any]:
    """Return the factor after each step, and parameters after the last: one is left out, one is clipped."""
    model = spread(net(device))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = tb.amp.GradScaler(init_scale=2.0**10, growth_interval=2)
    size = 4 // dist.get_world_size()
    mine, factors = X[size * dist.get_rank() :][:size].to(device), []

    def loss(x: tb.Tensor, weight: tb.Tensor) -> tb.Tensor:
        return scaler.scale((model(x).square() * weight).mean())

    run = tb.compile(loss) if compiled else loss
    for number in range(5):
        overflows = number == 2 and dist.get_rank() == dist.get_world_size() - 1
        run(mine, tb.full((), math.inf if overflows else 1.0, device=device)).backward()
        if number == 3:
            scaler.unscale_(optimizer)
            optim.clip_grad_norm_(model.parameters(), 0.05)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        factors.append(scaler.get_scale())
    parts = [p.full_tensor() if isinstance(p, dist.DTensor) else p for p in model.parameters()]
    return [factors, [p.detach().numpy() for p in parts]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SPREADS)
def test_steps_are_those_of_losses_that_are_not_scaled(name: str, compiled: bool, device: str) -> None:
    model = net("cpu")
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for number in (0, 1, 3, 4):
        model(X).square().mean().backward()
        if number == 3:
            optim.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
        optimizer.zero_grad()
    right = [p.detach().numpy() for p in model.parameters()]
    size, spread = SPREADS[name]
    for factors, parameters in dist.run_ranks(train, size, spread, device, compiled, timeout=60):
        assert factors == [1024, 2048, 1024, 1024, 2048]
        assert_alike(parameters, right, ROUNDINGS)


def split(model: nn.Sequential) -> nn.Sequential:
    """Split the layers over pairs of ranks, whose pairs have copies of each other."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dist.parallelize_module(model, mesh["tp"], {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()})
    return dist.replicate(model, mesh["dp"])


SHARED: dict[str, tuple[int, Callable[[nn.Sequential], nn.Sequential]]] = {
    "copies": (2, dist.replicate), "parts": (2, divided), "copies of split layers": (4, split)
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_a_parameter_of_one_rank_alone_decides_on_all(name: str) -> None:
    size, spread = SHARED[name]

    def rank() -> Any:
        model = spread(net("cpu"))
        own = [nn.Parameter(tb.ones(2, device="cpu"))] * (dist.get_rank() == size - 1)
        optimizer = optim.SGD([*model.parameters(), *own], lr=0.1)
        scaler, taken = tb.amp.GradScaler(init_scale=8.0), []
        for factor in (1.0, math.inf, 1.0):
            before = [x.clone() for x in model.parameters()]
            scaler.scale(sum((x.sum() * factor for x in own), model(X).sum())).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            pairs = zip(before, model.parameters(), strict=True)
            taken.append(any(bool((a != b).any()) for a, b in pairs))
        return taken, scaler.get_scale()

    assert dist.run_ranks(rank, size) == [([True, False, True], 4.0)] * size


def test_optimizers_that_ranks_share_and_others_need_factors_of_their_own() -> None:
    def rank() -> None:
        model, own = dist.replicate(net("cpu")), nn.Parameter(tb.ones(2, device="cpu"))
        scaler = tb.amp.GradScaler()
        scaler.scale(model(X).sum() + own.sum()).backward()
        optimizers = [optim.SGD(parameters, lr=0.1) for parameters in (model.parameters(), [own])]
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()

    with pytest.raises(StateError, match=r"rank's own: ranks would.*scaler for each"):
        dist.run_ranks(rank, 2)


def test_states_and_switches() -> None:
    scaler = tb.amp.GradScaler("cpu", init_scale=8.0)
    scaler.set_growth_factor(3.0)
    scaler.set_backoff_factor(0.25)
    scaler.set_growth_interval(7)
    scaler.update(4.0)
    other = tb.amp.GradScaler()
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == {
        "scale": 4.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 0
    }  # fmt: skip
    assert (other.get_growth_factor(), other.get_backoff_factor()) == (3.0, 0.25)
    assert (other.get_scale(), other.get_growth_interval()) == (4.0, 7)
    off = tb.amp.GradScaler(enabled=False)
    w = nn.Parameter(tb.ones(2, device="cpu"))
    optimizer = optim.SGD([w], lr=1.0)
    off.scale(w.sum()).backward()
    off.unscale_(optimizer)
    off.step(optimizer)
    off.update()
    off.load_state_dict(off.state_dict())
    assert (w.tolist(), off.get_scale(), off.is_enabled()) == ([0.0, 0.0], 1.0, False)
    assert [x.item() for x in scaler.scale((w.sum() + 1, [w.sum() + 2]))[1]] == [8.0]


def _twice(name: str) -> Callable[[], object]:
    def call() -> object:
        w = nn.Parameter(tb.ones(2, device="cpu"))
        optimizer, scaler = optim.SGD([w], lr=1.0), tb.amp.GradScaler()
        scaler.scale(w.sum()).backward()
        getattr(scaler, name)(optimizer)
        return getattr(scaler, name)(optimizer)

    return call


def _narrow() -> object:
    w = nn.Parameter(tb.ones(2, dtype=tb.float16, device="cpu"))
    w.sum().backward()
    return tb.amp.GradScaler().unscale_(optim.SGD([w], lr=1.0))


MISTAKES: dict[str, tuple[type[Exception], Callable[[], object]]] = {
    "growth_factor > 1": (ArgumentError, lambda: tb.amp.GradScaler(growth_factor=1.0)),
    "no step": (StateError, lambda: tb.amp.GradScaler().update()),
    "are unscaled already": (StateError, _twice("unscale_")),
    "has done a step already": (StateError, _twice("step")),
    "Keep parameters in float32": (DtypeError, _narrow),
    "the state has no 'scale'": (StateError, lambda: tb.amp.GradScaler().load_state_dict({})),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_say_what_to_do(message: str) -> None:
    error, call = MISTAKES[message]
    with pytest.raises(error, match=message):
        call()
