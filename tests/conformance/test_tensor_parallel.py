"""A small GPT whose layers are split over ranks trains as on one device, by the collectives that it takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn
from tensorbus.errors import ArgumentError, ShapeError

from error_bounds import assert_alike

from .installed import available

VOCABULARY, WIDTH, HEADS, HIDDEN, LENGTH, BATCH, STEPS = 13, 8, 4, 18, 8, 4, 20
R, S = dist.Replicate, dist.Shard
COLUMNS, ROWS, NORM = dist.ColwiseParallel, dist.RowwiseParallel, dist.SequenceParallel
INPUT = dist.PrepareModuleInput


class Attention(nn.Module):
    """Causal attention of as many heads as its layers give."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, WIDTH, device=device) for _ in range(4)
        )

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return what each place takes from those before it."""
        heads = []
        for layer in (self.query, self.key, self.value):
            y = layer(x)
            heads.append(y.reshape((*y.shape[:2], -1, WIDTH // HEADS)).permute(0, 2, 1, 3))
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True).permute(0, 2, 1, 3)
        return self.out(y.reshape((*y.shape[:2], -1)))


class MLP(nn.Module):
    """Two layers, of which the inner width is no multiple of the number of ranks."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, HIDDEN, device=device), nn.Linear(HIDDEN, WIDTH, device=device)

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return the second layer of the first."""
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    """Attention and an MLP, each beside a sum."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH, device=device), nn.RMSNorm(WIDTH, device=device)
        self.attention, self.mlp = Attention(device), MLP(device)

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return the block's result, of the shape of ``x``."""
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    """Logits of the next token at each place."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH, device=device)
        self.places = nn.Embedding(LENGTH, WIDTH, device=device)
        self.blocks = nn.ModuleList([Block(device)])
        self.norm = nn.LayerNorm(WIDTH, device=device)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, device=device)

    def forward(self, tokens: tb.Tensor, places: tb.Tensor) -> tb.Tensor:
        """Return ``(batch, length, vocabulary)``."""
        x = self.tokens(tokens) + self.places(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


PLAN: dict[str, dist.ParallelStyle] = {
    "blocks.*.attention": INPUT(input_layouts=R(), desired_input_layouts=R()),
    "blocks.*.attention.[qkv]*": COLUMNS(),
    "blocks.*.*.[od]*": ROWS(),
    "blocks.*.mlp.up": COLUMNS(),
}
LOSS = PLAN | {"head": COLUMNS(use_local_output=False)}


def sequence_plan(local: bool) -> dict[str, dist.ParallelStyle]:
    """Return the plan by which all but attention, MLP and loss runs on parts of the sequence."""
    back = {"output_layouts": S(1), "use_local_output": local}
    return {
        "tokens": ROWS(input_layouts=R(), **back),
        "places": ROWS(input_layouts=R(), output_layouts=S(0), use_local_output=local),
        "blocks.*.[fs]*": NORM(),
        "blocks.*.attention": INPUT(input_layouts=S(1), desired_input_layouts=R()),
        "blocks.*.attention.[qkv]*": COLUMNS(use_local_output=local),
        "blocks.*.mlp": INPUT(input_layouts=S(1), desired_input_layouts=R()),
        "blocks.*.mlp.up": COLUMNS(use_local_output=local),
        "blocks.*.*.[od]*": ROWS(**back),
        "norm": NORM(),
        "head": COLUMNS(input_layouts=S(1), use_local_output=False),
    }


def trained(
    model: nn.Module, optimizer: Any, length: int, device: str, part: slice, compiled: bool = False
) -> list[float]:
    """Return the losses of all steps on some of the examples."""
    tokens = tb.asarray([[(3 * i + 7 * k) % VOCABULARY for k in range(length + 1)] for i in range(BATCH)])
    x, y = tokens[part, :-1].to(device), tokens[part, 1:].reshape((-1,)).to(device)
    places = tb.arange(length, device=device)

    def step(x: tb.Tensor, y: tb.Tensor, places: tb.Tensor) -> tb.Tensor:
        with dist.loss_parallel():
            logits = model(x, places)
            loss = nn.functional.cross_entropy(logits.reshape((-1, VOCABULARY)), y)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    run = tb.compile(step, fullgraph=True) if compiled else step
    losses = [run(x, y, places).item() for _ in range(STEPS)]
    if compiled:  # one program a rank, collectives included
        assert (len(run.this_rank.graphs), len(run.this_rank.replays)) == (1, 1), run.this_rank.recompiles
    return losses


class Case(NamedTuple):
    """A way to train on several ranks; ``counts`` are the collectives of a step, None where not counted."""

    plan: dict[str, dist.ParallelStyle]
    counts: dict[str, int] | None = None
    shape: tuple[int, ...] = (4,)
    length: int = LENGTH
    devices: tuple[str, ...] = ("cpu",)
    optimizer: Callable[..., Any] = tb.optim.AdamW
    compiled: bool = False


# Attention and the MLP, pairs of layers, take one all_reduce forward and one backward each. The loss takes
# the maximum, the sum of exponentials (in two halves), the target's logit, the gradient of the head's input,
# and one more to be read. On parts of the sequence each all_reduce is a reduce_scatter and an all_gather, the
# embeddings and the input of the head are moved as well, and the gradients of norms, which are whole on each
# rank, are added up in one.
SEQUENCE = {"reduce_scatter": 9, "all_gather": 9, "all_reduce": 2}
CASES = {
    "loss": Case(LOSS, {"all_reduce": 6, "reduce_scatter": 2, "all_gather": 2}),
    "compiled": Case(LOSS, {"all_reduce": 6, "reduce_scatter": 2, "all_gather": 2}, compiled=True),
    "sequence": Case(sequence_plan(True), SEQUENCE),
    "tensor": Case(PLAN, {"all_reduce": 4}),
    "uneven sequence": Case(sequence_plan(False), SEQUENCE, length=LENGTH - 1),
    "two dimensions": Case(sequence_plan(True), shape=(2, 2)),
    "two dimensions, compiled": Case(sequence_plan(True), shape=(2, 2), compiled=True),
    "momentum": Case(LOSS, optimizer=lambda ps, lr: tb.optim.SGD(ps, lr=lr, momentum=0.9)),
    "refdev": Case(LOSS, shape=(2,), devices=("refdev",)),
    "refdev, compiled": Case(LOSS, shape=(2,), devices=("refdev",), compiled=True),
    "cpu and opencl": Case(LOSS, shape=(2,), devices=("cpu", "opencl")),
}
FAST = ("loss",)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.full) for name in CASES]
)
def test_split_layers_train_as_whole_ones(name: str) -> None:
    case = CASES[name]
    if not {*case.devices} <= {*available()}:
        pytest.skip(f"{' and '.join(case.devices)} are needed")
    tb.manual_seed(0)
    model = GPT("cpu")
    state = {key: value.clone() for key, value in model.state_dict().items()}
    expected = trained(model, case.optimizer(model.parameters(), lr=1e-2), case.length, "cpu", slice(None))

    def rank() -> tuple[list[float], Counter[str]]:
        device = case.devices[dist.get_rank() % len(case.devices)]
        mesh = dist.init_device_mesh(None, case.shape, mesh_dim_names=("dp", "tp")[-len(case.shape) :])
        model = GPT(device)
        model.load_state_dict({key: value.to(device) for key, value in state.items()})
        dist.parallelize_module(model, mesh["tp"], case.plan)
        part = slice(None)
        if "dp" in (mesh.mesh_dim_names or ()):
            dist.replicate(model, mesh["dp"])
            count = BATCH // mesh.size("dp")
            part = slice(mesh.get_local_rank("dp") * count, (mesh.get_local_rank("dp") + 1) * count)
        optimizer = case.optimizer(model.parameters(), lr=1e-2)
        before = len(dist.records())
        losses = trained(model, optimizer, case.length, device, part, case.compiled)
        calls = Counter(record.operation for record in dist.records()[before:])
        if "dp" in (mesh.mesh_dim_names or ()):
            means = dist.functional.all_reduce(tb.asarray(losses), "average", mesh.get_group("dp"))
            losses = means.tolist()
        return losses, calls

    results = dist.run_ranks(rank, math.prod(case.shape))
    for losses, calls in results:
        assert_alike(losses, expected, STEPS * 64)  # sums of a batch and of a layer's elements in each
        if case.counts is not None:
            assert calls == {name: STEPS * count for name, count in case.counts.items()}


class Pair(nn.Module):
    """A module of two arguments, one by name, and two results."""

    def forward(self, x: Any, count: int, *, y: Any) -> tuple[Any, Any, int]:
        """Return both doubled, and the number."""
        return x * 2, y * 2, count


STYLES: dict[str, tuple[Callable[[], dist.ParallelStyle], Any]] = {
    "distributed": (
        lambda: dist.PrepareModuleInput(
            input_layouts=(S(0), None), desired_input_layouts=(R(), None),
            input_kwarg_layouts={"y": R()}, desired_input_kwarg_layouts={"y": S(1)},
        ),
        ((R(),), (S(1),)),
    ),
    "local": (
        lambda: dist.PrepareModuleInput(
            input_layouts=(S(0), None), desired_input_layouts=(R(), None),
            input_kwarg_layouts={"y": R()}, desired_input_kwarg_layouts={"y": S(1)}, use_local_output=True,
        ),
        ((4, 2), (2, 1)),
    ),
    "results": (
        lambda: dist.PrepareModuleOutput(
            output_layouts=(S(0), R(), None), desired_output_layouts=(R(), S(0), None)
        ),
        ((4, 2), (1, 2)),
    ),
    "both": (
        lambda: dist.PrepareModuleInputOutput(
            input_layouts=(S(0), None), desired_input_layouts=(R(), None), use_local_input=True,
            output_layouts=(S(1), R(), None), desired_output_layouts=(R(), S(0), None),
            use_local_output=False,
        ),
        ((R(),), (S(0),)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STYLES)
def test_what_goes_in_and_comes_out_is_laid_out(name: str) -> None:
    style, expected = STYLES[name]

    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        part = tb.full((2, 2), dist.get_rank() + 1.0, device="cpu")
        module = dist.parallelize_module(Pair(), mesh, style())
        *results, count = module(part, 3, y=tb.ones((2, 2), device="cpu"))
        assert count == 3
        return tuple([x.placements if isinstance(x, dist.DTensor) else x.shape for x in results])

    assert dist.run_ranks(rank, 2) == [expected, expected]


def test_a_shared_parameter_stays_one() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        model = nn.ModuleDict(
            {"a": nn.Embedding(5, 4, device="cpu"), "b": nn.Linear(4, 5, False, device="cpu")}
        )
        model["b"].weight = model["a"].weight
        plan = {"a": ROWS(input_layouts=R()), "b": COLUMNS(output_layouts=R())}
        dist.parallelize_module(model, mesh, plan)
        model["b"](model["a"](tb.asarray([4, 0], device="cpu"))).sum().backward()
        return (
            model["a"].weight is model["b"].weight,
            len([*model.parameters()]),
            model["a"].weight.grad.shape,
        )

    assert dist.run_ranks(rank, 2) == [(True, 1, (5, 4))] * 2


def split(
    plan: Any, model: nn.Module | None = None, shape: tuple[int, ...] = (2,), by: str | None = None
) -> Any:
    """Split a model, and run it on a row, which is passed by position or by a name."""
    mesh = dist.init_device_mesh("cpu", shape)
    model = dist.parallelize_module(
        model or nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("cpu"), mesh, plan
    )
    x = tb.ones((1, 3, 4), device="cpu")
    return model(x) if by is None else model(**{by: x})


def tied() -> nn.Module:
    """Return two layers with one weight."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).to("cpu")
    model[1].weight = model[0].weight
    return model


MISTAKES: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "a slice of it": (ArgumentError, lambda: split({}, shape=(1, 2))),
    "a DeviceMesh is needed, as init_device_mesh makes one, got 2": (
        ArgumentError,
        lambda: dist.parallelize_module(nn.Linear(4, 4), 2, COLUMNS()),
    ),
    "a plan is a style, or styles by the paths": (ArgumentError, lambda: split([COLUMNS()])),
    "a module is needed, got 3": (ArgumentError, lambda: dist.parallelize_module(3, None, {})),
    "'2' names no module": (ArgumentError, lambda: split({"2": COLUMNS()})),
    "holds styles such as": (ArgumentError, lambda: split({"0": COLUMNS})),
    "Name the layers inside": (ArgumentError, lambda: split(COLUMNS())),
    "share a parameter": (ArgumentError, lambda: split({"0": COLUMNS(), "1": ROWS()}, tied())),
    "must have as many": (ArgumentError, lambda: split(INPUT(input_layouts=R()))),
    "one for each": (
        ArgumentError,
        lambda: split(INPUT(input_layouts=[R()] * 2, desired_input_layouts=[R()] * 2)),
    ),
    "ColwiseParallel: it lays out the first argument of Linear": (
        ArgumentError,
        lambda: split(COLUMNS(), nn.Linear(4, 4).to("cpu"), by="x"),
    ),
    "SequenceParallel: it lays out the first argument of LayerNorm": (
        ArgumentError,
        lambda: split(NORM(), nn.LayerNorm(4).to("cpu"), by="x"),
    ),
    "name the same": (ArgumentError, lambda: split(INPUT(input_kwarg_layouts={"x": R()}))),
    "use_local_output=False": (
        ShapeError,
        lambda: split({"1": ROWS(input_layouts=R(), output_layouts=S(1))}),
    ),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message: str) -> None:
    kind, call = MISTAKES[message]
    with pytest.raises(kind, match=message):
        dist.run_ranks(call, 2)
