"""Every optimizer on divided parameters of a model with all that is odd, beside the same on one rank."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn, optim

WIDTH, WORDS, STEPS = 6, 11, 5
TOKENS = tb.arange(32, device="cpu").reshape((8, 4)) % WORDS


class Odd(nn.Module):
    """A weight that two layers share, a layer that runs twice, a frozen one, one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        here: dict[str, Any] = {"device": "cpu", "dtype": tb.float64}
        self.words, self.first = nn.Embedding(WORDS, WIDTH, **here), nn.Linear(WIDTH, 7, **here)
        self.twice, self.frozen = nn.Linear(7, 7, **here), nn.Linear(7, WIDTH, **here)
        self.unused, self.norm = nn.Linear(3, 3, **here), nn.LayerNorm(WIDTH, **here)
        self.head = nn.Linear(WIDTH, WORDS, bias=False, **here)
        self.head.weight = self.words.weight
        self.frozen.requires_grad_(False)

    def forward(self, tokens: tb.Tensor) -> tb.Tensor:
        """Return logits for each token."""
        x = tb.tanh(self.first(self.words(tokens)))
        x = self.twice(tb.tanh(self.twice(x)))
        return self.head(self.norm(self.frozen(x)))


STATE = {name: value.clone() for name, value in Odd().state_dict().items()}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    name: {}
    for name in sorted({*dir(optim)} - {"Optimizer"})
    if inspect.isclass(kind := getattr(optim, name)) and issubclass(kind, optim.Optimizer)
}
OPTIMIZERS["SGD"] = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}
OPTIMIZERS["LBFGS"] = {"lr": 0.5, "max_iter": 3, "line_search_fn": "strong_wolfe"}
WAYS: dict[str, tuple[tuple[int, ...], bool, dict[str, Any]]] = {
    "parts": ((4,), False, {}),
    "parts, compiled": ((4,), True, {}),
    "copies of parts, compiled": ((2, 2), True, {}),
    "in the host, compiled": ((4,), True, {"offload_policy": dist.CPUOffloadPolicy()}),
    "whole until the end": ((4,), False, {"reshard_after_forward": False}),
    "split layers": ((1, 4), False, {}),
    "parts of split layers": ((2, 2), False, {}),
}
"""By name: the mesh, whether steps are compiled, and options of ``fully_shard``."""
SPLIT = dict.fromkeys(("first", "twice"), dist.ColwiseParallel(output_layouts=dist.Replicate()))
FAST = {("Muon", "parts"), ("AdamW", "parts"), ("LBFGS", "split layers")}
CASES = [
    pytest.param(name, way, marks=() if (name, way) in FAST else pytest.mark.full)
    for name in OPTIMIZERS
    for way in WAYS
    if way == "parts" or "split" in way or name == "AdamW" or (way == "parts, compiled" and name != "LBFGS")
]


def optimizers(name: str, parameters: list[Any]) -> list[Any]:
    """Return the optimizer of parameters; one of matrices leaves the others to AdamW."""
    make = getattr(optim, name)
    if name != "Muon":
        return [make(parameters, **OPTIMIZERS[name])]
    matrices = [p for p in parameters if p.ndim == 2]
    return [make(matrices), optim.AdamW([p for p in parameters if p.ndim != 2])]


def trained(name: str, size: int, way: str) -> tuple[list[float], dict[str, Any]]:
    """Return the losses on all ranks, and the parameters after them."""
    shape, compiled, options = WAYS[way]

    def rank() -> Any:
        model = Odd()
        model.load_state_dict(STATE)
        readers, place = 1, 0
        if size > 1:
            split = "split" in way
            mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp") if split else None)
            if split:
                dist.parallelize_module(model, mesh["tp"], SPLIT)
                mesh = mesh["dp"]
            if mesh.size() > 1:
                for module in (model.first, model.twice, model.frozen, model):
                    dist.fully_shard(module, mesh, **options)
            readers, place = mesh.size(), dist.get_rank() * mesh.size() // size
        used = [p for key, p in model.named_parameters() if p.requires_grad and "unused" not in key]
        own = optimizers(name, used)
        part = 8 // readers
        mine = TOKENS[place * part : (place + 1) * part]

        def closure() -> tb.Tensor:
            for one in own:
                one.zero_grad()
            logits = model(mine).reshape((-1, WORDS))
            loss = nn.functional.cross_entropy(logits, ((mine * 3 + 1) % WORDS).reshape((-1,)))
            loss.backward()
            optim.clip_grad_norm_(used, 0.5)
            return dist.functional.all_reduce(loss.detach(), "average")

        def step() -> Any:
            if name == "LBFGS":
                return own[0].step(closure)
            loss = closure()
            for one in own:
                one.step()
            return loss

        run = tb.compile(step) if compiled and size > 1 else step
        losses = [float(run()) for _ in range(STEPS)]
        return losses, {
            key: (x.full_tensor() if isinstance(x, dist.DTensor) else x).detach().numpy()
            for key, x in model.state_dict().items()
        }

    first, *others = dist.run_ranks(rank, size, timeout=120)
    assert all(other[0] == first[0] for other in others)
    return first


@pytest.mark.parametrize(("name", "way"), CASES)
def test_training_is_that_of_one_rank(name: str, way: str) -> None:
    losses, state = trained(name, 4, way)
    expected, known = trained(name, 1, way)
    assert abs(expected[-1] - expected[0]) > 1e-4, "it learns nothing"
    # Muon rounds to bfloat16: where two sums of float64 fall on two sides, a step is apart by that.
    apart = 1e-5 if name == "Muon" else 1e-9
    np.testing.assert_allclose(losses, expected, rtol=0, atol=apart)
    for key, value in known.items():
        np.testing.assert_allclose(state[key], value, rtol=0, atol=apart, err_msg=key)
    for key in ("frozen.weight", "unused.weight"):
        np.testing.assert_array_equal(state[key], STATE[key].numpy())
