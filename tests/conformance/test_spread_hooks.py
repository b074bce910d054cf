"""Hooks of parameters and of modules run where ranks train a model together, as they do on one rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn, optim

X, Y = tb.randn(8, 6, device="cpu"), tb.randn(8, 3, device="cpu")
STEPS = 4


def model() -> Any:
    """Return a small model, the same on each rank."""
    tb.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to("cpu")


def in_parts(layers: Any, mesh: Any = None) -> Any:
    """Divide a layer, and what is left."""
    dist.fully_shard(layers[0], mesh)
    return dist.fully_shard(layers, mesh)


def split(layers: Any) -> Any:
    """Split layers, and divide what they have once more."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    plan = {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()}
    dist.parallelize_module(layers, mesh["tp"], plan)
    return in_parts(layers, mesh["dp"])


SPREADS: dict[str, Callable[[Any], Any]] = {
    "copies": dist.replicate,
    "copies in small buckets": lambda layers: dist.replicate(layers, bucket_cap_mb=1e-5),
    "parts": in_parts,
    "parts of split layers": split,
}


def whole(x: tb.Tensor) -> Any:
    """Return the elements of all ranks."""
    return (x.full_tensor() if isinstance(x, dist.DTensor) else x).numpy()


def trained(spread: Callable[[Any], Any], size: int, compiled: bool) -> tuple[Any, Any, Any]:
    """Train by optimizers that hooks step, with doubled gradients of weights; return what hooks saw too."""

    def rank() -> Any:
        layers, seen = spread(model()), []
        optimizers = {p: optim.AdamW([p], lr=0.02) for p in layers.parameters()}

        def step(p: tb.Tensor) -> None:
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in optimizers:
            if p.ndim == 2:
                p.register_hook(lambda g: g * 2)
            p.register_post_accumulate_grad_hook(step)
        layers[1].register_forward_hook(lambda m, args, out: seen.append(out.shape[0]))
        groups = 2 if spread is split else size
        part = 8 // groups
        mine = slice(part * (dist.get_rank() * groups // size), part * (dist.get_rank() * groups // size + 1))

        def loss(x: tb.Tensor, y: tb.Tensor) -> tb.Tensor:
            value = ((layers(x) - y) ** 2).mean()
            value.backward()
            return value.detach()

        run = tb.compile(loss) if compiled else loss
        for _ in range(STEPS):
            run(X[mine], Y[mine])
        assert all(p.grad is None for p in optimizers)
        return seen, [whole(p) for p in layers.parameters()], part

    return dist.run_ranks(rank, size)[0]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SPREADS)
def test_hooks_of_parameters_step_optimizers(name: str, compiled: bool) -> None:
    seen, got, part = trained(SPREADS[name], 4, compiled)
    _, expected, _ = trained(lambda layers: layers, 1, compiled=False)
    assert compiled or seen == [part] * STEPS
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=2e-6)
