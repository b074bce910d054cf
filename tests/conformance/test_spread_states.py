"""A state that one spread of a model saved, another loads and goes on with, an optimizer's included."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn, optim
from tensorbus.errors import StateError
from tensorbus.func import pytree

WIDTH, WORDS, BATCH, STEPS = 6, 11, 6, 3
TOKENS = tb.arange(BATCH * 4, device="cpu").reshape((BATCH, 4)) % WORDS
PLAN: dict[str, dist.ParallelStyle] = {
    "words": dist.RowwiseParallel(input_layouts=dist.Replicate()),
    "up": dist.ColwiseParallel(),
    "down": dist.RowwiseParallel(),
}


class Net(nn.Module):
    """Layers that a plan splits, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(WORDS, WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down, self.head = nn.Linear(WIDTH, 9), nn.Linear(9, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: tb.Tensor) -> tb.Tensor:
        """Return logits for each token."""
        x = self.words(tokens)
        return self.head(x + self.down(tb.tanh(self.up(self.norm(x)))))


def split(model: Net) -> Any:
    """Split layers over pairs of ranks; return the mesh of the others."""
    names = ("dp", "tp")
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=names)
    dist.parallelize_module(model, mesh["tp"], PLAN)
    return mesh["dp"]


def in_parts(model: Net, mesh: Any = None) -> None:
    """Divide a layer and what is left."""
    for module in (model.up, model):
        dist.fully_shard(module, mesh)


SPREADS: dict[str, tuple[int, Callable[[Net], object]]] = {
    "one rank": (1, lambda model: model),
    "copies": (2, dist.replicate),
    "two parts": (2, in_parts),
    "three parts": (3, lambda model: in_parts(model, dist.init_device_mesh("cpu", (3,)))),
    "copies of parts": (4, lambda model: in_parts(model, dist.init_device_mesh("cpu", (2, 2)))),
    "split": (2, split),
    "copies of split layers": (4, lambda model: dist.replicate(model, split(model))),
    "parts of split layers": (4, lambda model: in_parts(model, split(model))),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "AdamW": lambda parameters: optim.AdamW(parameters, lr=0.02, amsgrad=True),
    "Adafactor": lambda parameters: optim.Adafactor(parameters, lr=0.02),
}
AROUND = [*SPREADS, next(iter(SPREADS))]
PAIRS = [*pairwise(AROUND), *zip(AROUND[3:], AROUND, strict=False)]


def steps(model: Net, optimizer: Any) -> list[float]:
    """Return the losses of some steps, on the same data on each rank."""
    losses = []
    for _ in range(STEPS):
        logits = model(TOKENS).reshape((-1, WORDS))
        loss = nn.functional.cross_entropy(logits, (TOKENS * 3 + 1).reshape((-1,)) % WORDS)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def spread(name: str, optimizer: str, on_shapes: bool = False) -> tuple[Net, Any]:
    """Return a model that is spread over the ranks, made without memory first if wanted, and an optimizer."""
    tb.manual_seed(0 if "split" in name else dist.get_rank())  # a plan leaves what it does not name
    with tb.device("meta" if on_shapes else "cpu"):
        model = Net()
    SPREADS[name][1](model)
    if on_shapes and name != "copies of parts":
        model.to_empty(device="cpu")
    return model, OPTIMIZERS[optimizer](model.parameters())


def layouts(tree: Any) -> list[Any]:
    """Return how each tensor lies, and what this rank has of it."""
    parts = [x for x in pytree.leaves(tree) if isinstance(x, tb.Tensor)]
    return [(x.placements, x.to_local().shape) if isinstance(x, dist.DTensor) else x.shape for x in parts]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(*pair, marks=() if k < 4 else pytest.mark.full) for k, pair in enumerate(PAIRS)],
)
def test_training_goes_on_where_it_was(before: str, after: str, optimizer: str, tmp_path: Any) -> None:
    def save() -> Any:
        model, own = spread(before, optimizer)
        steps(model, own)
        state = {"model": model.state_dict(), "optimizer": own.state_dict()}
        tb.save(state, tmp_path / f"{dist.get_rank()}.npz")
        return steps(model, own)

    def go_on() -> Any:
        model, own = spread(after, optimizer, on_shapes="split" in after or "parts" in after)
        kinds = [type(p) for p in model.parameters()]
        state = tb.load(tmp_path / "0.npz")
        model.load_state_dict(state["model"], assign=after == "copies of parts")
        own.load_state_dict(state["optimizer"])
        assert [type(p) for p in model.parameters()] == kinds
        if optimizer == "AdamW":  # no rank holds more than it would of a state that began here
            fresh = spread(after, optimizer)
            steps(*fresh)
            assert layouts(own.state_dict()["state"]) == layouts(fresh[1].state_dict()["state"])
        return steps(model, own)

    expected = dist.run_ranks(save, SPREADS[before][0])[0]
    for losses in dist.run_ranks(go_on, SPREADS[after][0]):
        np.testing.assert_allclose(losses, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", [*SPREADS][1:])
def test_a_module_is_copied_as_it_is_spread_and_pickle_names_its_state(name: str) -> None:
    def rank() -> Any:
        tb.manual_seed(0)
        model = Net().to("cpu")
        SPREADS[name][1](model)
        for outer in (model, nn.Sequential(model)):
            with pytest.raises(StateError, match=r"ranks.*tensorbus.save\(model.state_dict\(\), path\)"):
                pickle.dumps(outer)
        return [one(TOKENS).tolist() for one in (model, copy.copy(model), copy.deepcopy(model))]

    for values in dist.run_ranks(rank, SPREADS[name][0]):
        assert values == [values[0]] * 3


def test_a_state_of_one_mesh_is_loaded_on_another_and_into_a_whole_module() -> None:
    def rank() -> Any:
        tb.manual_seed(0)
        source, *others = (Net().to("cpu") for _ in range(5))
        expected = {name: x.clone() for name, x in source.state_dict().items()}
        split(source)
        in_parts(others[0])
        in_parts(others[1], dist.init_device_mesh("cpu", (1, 2)))
        for model in others:  # from the one before, the last two by assignment
            model.load_state_dict(source.state_dict(), assign=model in others[2:])
            source = model
        for name, x in others[1].state_dict().items():
            assert (x.full_tensor() == expected[name]).all()
        return [
            {isinstance(p, dist.DTensor) for p in model.parameters()}
            | {bool((model.up.weight == expected["up.weight"]).all()) for model in others[2:]}
            for model in others
        ]

    expected = [{True}, {True}, {True, False}, {True, False}]
    assert dist.run_ranks(rank, 2) == [expected] * 2
