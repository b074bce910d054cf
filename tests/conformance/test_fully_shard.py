"""Training with divided parameters gives what training on one rank gives; whole parameters do not stay."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn, optim
from tensorbus.errors import ArgumentError

from error_bounds import assert_alike

X, Y = tb.randn(8, 6, device="cpu"), tb.randn(8, 3, device="cpu")


class Net(nn.Module):
    """Layers of lengths that four ranks do not divide, and a parameter of the whole."""

    checkpointed: bool | str = False

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.a = nn.Linear(6, 7, device=device)
        self.b = nn.Linear(7, 3, device=device)
        self.scale = nn.Parameter(tb.ones(3, device=device))

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return a row of three for each row of six."""
        if self.checkpointed == "within":
            return tb.checkpoint(self.layers, x)
        if self.checkpointed:
            return tb.checkpoint(self.b, tb.tanh(tb.checkpoint(self.a, x))) * self.scale
        return self.layers(x)

    def layers(self, x: tb.Tensor) -> tb.Tensor:
        """Return what forward does."""
        return self.b(tb.tanh(self.a(x))) * self.scale


STATE = {name: value.clone() for name, value in Net().state_dict().items()}


def last_axis(p: nn.Parameter) -> dist.Shard:
    """Divide each parameter along its last axis."""
    return dist.Shard(-1)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stays whole": {"reshard_after_forward": False},
    "adds up": {"sync": False},
    "hybrid": {"mesh": (2, 2)},
    "clipped": {"clip": 0.05},
    "checkpointed": {"checkpointed": True},
    "checkpointed within": {"checkpointed": "within"},
    "stays whole, checkpointed within": {"checkpointed": "within", "reshard_after_forward": False},
    "in the host": {"offload_policy": dist.CPUOffloadPolicy()},
    "from shapes": {"meta": True},
    "averaged in float64": {"mp_policy": dist.MixedPrecisionPolicy(reduce_dtype=tb.float64)},
    "compiled": {"compiled": True},
    "stays whole, compiled": {"reshard_after_forward": False, "compiled": True},
    "checkpointed within, compiled": {"checkpointed": "within", "compiled": True},
    "hybrid, compiled": {"mesh": (2, 2), "compiled": True},
    "clipped, compiled": {"clip": 0.05, "compiled": True},
    "adds up, compiled": {"sync": False, "compiled": True},
    "averaged in float64, compiled": {
        "mp_policy": dist.MixedPrecisionPolicy(reduce_dtype=tb.float64),
        "compiled": True,
    },
    "split, compiled": {"mesh": (2, 2), "split": True, "compiled": True},
    "split, clipped": {"mesh": (2, 2), "split": True, "clip": 0.05},
    "split, adds up": {"mesh": (2, 2), "split": True, "sync": False},
    "split, in the host": {"mesh": (2, 2), "split": True, "offload_policy": dist.CPUOffloadPolicy()},
    "split, from shapes": {"mesh": (2, 2), "split": True, "meta": True},
    "split, stays whole": {"mesh": (2, 2), "split": True, "reshard_after_forward": False},
    "split, hybrid": {"mesh": (1, 2, 2), "split": True},
    "split, along the last axis": {"mesh": (2, 2), "split": True, "shard_placement_fn": last_axis},
}
FAST = [name for name in OPTIONS if not ("split, " in name or ", compiled" in name)] + ["split, clipped"]


def divided(model: Net, **options: Any) -> Net:
    """Divide two layers, and what is left."""
    for module in (model.a, model.b, model):
        dist.fully_shard(module, **options)
    return model


def losses(
    size: int, device: str, mesh: tuple[int, ...] | None = None, clip: float | None = None,
    sync: bool = True, meta: bool = False, split: bool = False, compiled: bool = False,
    checkpointed: bool | str = False, **options: Any,
) -> list[Any]:  # fmt: skip
    """Train for twenty steps on ``size`` ranks; return the losses, the same on each.

    ``split``: layers are split along the last dimension of the mesh, and divided along the others.
    """

    def rank() -> Any:
        with tb.device("meta") if meta else contextlib.nullcontext():
            model = Net("meta" if meta else device)
        model.checkpointed = checkpointed
        if size > 1:
            layout = None
            if mesh is not None:
                names = ("copies", "parts", "tp")[-len(mesh) :]
                layout = dist.init_device_mesh(None, mesh, mesh_dim_names=names)
            if split:
                plan = {"a": dist.ColwiseParallel(), "b": dist.RowwiseParallel()}
                dist.parallelize_module(model, layout["tp"], plan)
                layout = layout[names[:-1]]
            divided(model, mesh=layout, **options)
        if meta:
            model.to_empty(device=device)
        model.load_state_dict(STATE if size == 1 else _laid(model))
        optimizer = optim.AdamW(model.parameters(), lr=0.05)
        part = 8 // size * (mesh[-1] if split else 1)
        place = dist.get_rank() // (mesh[-1] if split else 1)
        mine = slice(part * place, part * place + part)
        x, y = X[mine].to(device), Y[mine].to(device)

        def step(x: tb.Tensor, y: tb.Tensor) -> tb.Tensor:
            if size > 1 and not sync:
                model.set_requires_gradient_sync(False)
            if not sync:
                (((model(x) - y) ** 2).mean() / 3).backward()
            if size > 1:
                model.set_requires_gradient_sync(True)
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            if clip is not None:
                optim.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
            return dist.functional.all_reduce(loss.detach(), "average")

        run = tb.compile(step, fullgraph=True) if compiled else step
        return [run(x, y).item() for _ in range(20)]

    first, *others = dist.run_ranks(rank, size)
    assert all(other == first for other in others)
    return list(first)


def _laid(model: Net) -> dict[str, tb.Tensor]:
    """Return the state in the placements of the model's."""
    state = model.state_dict()
    return {
        name: dist.distribute_tensor(STATE[name].to(x.to_local().device), x.device_mesh, x.placements)
        for name, x in state.items()
        if isinstance(x, dist.DTensor)
    }


@pytest.mark.parametrize("where", ["cpu", pytest.param("refdev", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FAST else pytest.mark.full) for name in OPTIONS]
)
def test_losses_are_those_of_one_rank(name: str, where: str) -> None:
    options = OPTIONS[name]
    training = {key: value for key, value in options.items() if key in ("clip", "sync")}
    got = tb.asarray(losses(4, where, **options), device="cpu")
    expected = tb.asarray(losses(1, "cpu", **training), device="cpu")
    assert_alike(got, expected, roundings=1 << 10)  # twenty steps, each of sums in another order


def test_computing_in_bfloat16() -> None:
    policy = dist.MixedPrecisionPolicy("bfloat16", tb.float32, tb.float32)
    assert policy == dist.MixedPrecisionPolicy(tb.bfloat16, "float32", "float32")

    def rank() -> Any:
        model, seen = Net(), []
        model.a.register_forward_hook(lambda m, args, out: seen.append((m.weight.dtype, args[0].dtype)))
        out = divided(model, mp_policy=policy)(X)
        out.sum().backward()
        parts = [*model.parameters()]
        return seen, out.dtype, {p.dtype for p in parts}, {p.grad.dtype for p in parts}

    kinds = [(tb.bfloat16, tb.bfloat16)], tb.float32, {tb.float32}, {tb.float32}
    assert dist.run_ranks(rank, 2) == [kinds] * 2


@pytest.mark.parametrize("reshard", [True, False])
def test_whole_parameters_do_not_stay(reshard: bool) -> None:
    def rank() -> Any:
        model = Net()
        seen: list[Any] = []
        for layer in (model.a, model.b):
            layer.register_forward_hook(lambda m, args, out: seen.append(weakref.ref(m.weight._value)))
        loss = divided(model, reshard_after_forward=reshard)(X).sum()
        forward = [ref() is not None for ref in seen]
        calls = [record.operation for record in dist.records()].count("all_gather")
        loss.backward()
        del loss
        after = [ref() is not None for ref in seen]
        operations = [record.operation for record in dist.records()]
        return forward, after, operations.count("all_gather") - calls, operations.count("reduce_scatter")

    for forward, after, gathers, scatters in dist.run_ranks(rank, 2):
        assert forward == [not reshard] * 2
        assert after == [False, False]
        assert scatters == 3  # one for each group
        assert gathers == (3 if reshard else 0)


def test_whole_parameters_on_request_and_states() -> None:
    def rank() -> Any:
        ignored = nn.Linear(2, 2, device="cpu")
        model = nn.Sequential(nn.Linear(2, 3, device="cpu"), ignored)
        dist.fully_shard(model, ignored_params=[*ignored.parameters()])
        model.unshard()
        whole = model[0].weight.shape, isinstance(model[0].weight, dist.DTensor)
        model.reshard()
        state = model.state_dict()
        model.register_forward_pre_hook(lambda m, args: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            model(tb.ones(1, 2, device="cpu"))
        kinds = [isinstance(x, dist.DTensor) for x in model.parameters()]
        return whole, state["0.weight"].placements, kinds

    expected = ((3, 2), False), (dist.Shard(0),), [True, True, False, False]
    assert dist.run_ranks(rank, 2) == [expected] * 2


def shared_with_another() -> object:
    """Divide a layer whose weight another has too, then that one."""
    model = nn.Sequential(nn.Linear(2, 2, device="cpu"), nn.Linear(2, 2, device="cpu"))
    model[1].weight = model[0].weight
    dist.fully_shard(model[0])
    return dist.fully_shard(model)


def replaced() -> object:
    """Run a divided module that was given another parameter."""
    layer = dist.fully_shard(nn.Linear(2, 2, device="cpu"))
    layer.weight = nn.Parameter(tb.zeros((2, 2), device="cpu"))
    return layer(tb.ones((1, 2), device="cpu"))


def stepped_as_before() -> None:
    """Step by an optimizer that was made before parameters were divided."""
    layer = nn.Linear(2, 2, device="cpu")
    optimizer = tb.optim.AdamW(layer.parameters())
    dist.fully_shard(layer)(tb.ones((1, 2), device="cpu")).sum().backward()
    optimizer.step()


def called_with_others() -> object:
    """Take the gradient of a divided module as a function of its parameters."""
    layer = dist.fully_shard(nn.Linear(2, 2, device="cpu"))
    call = lambda p: tb.func.functional_call(layer, p, (tb.ones((1, 2), device="cpu"),)).sum()  # noqa: E731
    return tb.func.grad(call)(dict(layer.named_parameters()))


def from_shapes_alone() -> object:
    """Run a module that was made without memory, and got none."""
    with tb.device("meta"):
        model = Net("meta")
    return dist.fully_shard(model)(X)


MISTAKES: dict[str, Callable[[], object]] = {
    "divided already": lambda: dist.fully_shard(dist.fully_shard(Net())),
    "no dimensions": lambda: dist.fully_shard(nn.ParameterList([nn.Parameter(tb.ones((), device="cpu"))])),
    "distributed already": lambda: dist.fully_shard(
        dist.distribute_module(Net(), dist.init_device_mesh("cpu", (1,)))
    ),
    "shared with a module": shared_with_another,
    "a list of those that are one group, got 3": lambda: dist.fully_shard(3),
    r"a list of those that are one group, got \[\]": lambda: dist.fully_shard([]),
    r"or Shard\(dim\) of a dimension .* 'scale' -1 to 0; got Shard\(dim=1\)": lambda: dist.fully_shard(
        Net(), shard_placement_fn=lambda p: dist.Shard(1)
    ),
    "'scale', .* of this Net lie on 'meta'": from_shapes_alone,
    "'0' in this Sequential is a ReplicatedModule": lambda: dist.fully_shard(
        nn.Sequential(dist.replicate(Net()))
    ),
    "Make the optimizer afterwards": stepped_as_before,
    "this Linear was replaced by a Parameter of shape": replaced,
    r"functional_call is for modules that are not\s+divided": called_with_others,
    "mesh: DeviceMesh or None is needed, got 'cpu'": lambda: dist.fully_shard(Net(), "cpu"),
    "mp_policy: MixedPrecisionPolicy or None is needed": lambda: dist.fully_shard(
        Net(), mp_policy=tb.bfloat16
    ),
    "offload_policy: OffloadPolicy or None is needed": lambda: dist.fully_shard(Net(), offload_policy=True),
    "param_dtype is a floating-point dtype": lambda: dist.MixedPrecisionPolicy(param_dtype=tb.int32),
    "divides the 1 among which parameters lie, got 2": lambda: dist.fully_shard(
        Net(), reshard_after_forward=2
    ),
    "one or two dimensions": lambda: dist.fully_shard(Net(), dist.init_device_mesh("cpu", (1, 1, 1))),
}


def test_a_module_without_parameters_communicates_nothing() -> None:
    def rank() -> object:
        model = nn.Sequential(nn.Linear(2, 2, device="cpu"), nn.Dropout(0.0))
        for module in (model[0], model[1], model):  # the last has none that is not divided already
            dist.fully_shard(module)
        begun = len(dist.records())
        model(tb.ones((1, 2), device="cpu")).sum().backward()
        model[1].set_requires_gradient_sync(False)
        model[1].unshard()
        model[1].reshard()
        return [record.operation for record in dist.records()[begun:]], model[0].weight.grad.full_tensor()

    for operations, gradient in dist.run_ranks(rank, 2):
        assert operations == ["all_gather", "all_gather", "reduce_scatter"]
        assert gradient.tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_say_what_to_do(message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        dist.run_ranks(MISTAKES[message], 1)


@pytest.mark.parametrize("reshard", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_compiled_step_is_one_program_with_the_collectives_of_an_eager_one(reshard: bool) -> None:
    def rank() -> Any:
        calls = []
        for compiled in (False, True):
            model = divided(Net(), reshard_after_forward=reshard)
            optimizer = optim.AdamW(model.parameters(), lr=0.05)

            def step(model: Any = model, optimizer: Any = optimizer) -> tb.Tensor:
                loss = model(X).mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                return loss.detach()

            run = tb.compile(step, fullgraph=True) if compiled else step
            before = len(dist.records())
            for _ in range(3):
                run()
            calls.append(sorted((r.operation, r.shapes) for r in dist.records()[before:]))
        return calls[0] == calls[1], len(run.this_rank.graphs), len(run.this_rank.replays)

    assert dist.run_ranks(rank, 2) == [(True, 1, 1)] * 2


@pytest.mark.parametrize("parts", [True, False])
def test_a_compiled_step_of_many_groups_or_buckets_is_one_program(parts: bool) -> None:
    """Ops on the gradients of each are no loop that is better run round by round."""

    def rank() -> Any:
        layers = nn.Sequential(*[nn.Linear(4 + k % 3, 4 + (k + 1) % 3) for k in range(30)]).to("cpu")
        for layer in layers if parts else ():
            dist.fully_shard(layer)
        model = dist.fully_shard(nn.Sequential(layers, nn.Linear(4, 1).to("cpu"))) if parts else layers
        model = model if parts else dist.replicate(model, bucket_cap_mb=1e-5)

        @tb.compile
        def step(x: tb.Tensor) -> None:
            model(x).sum().backward()

        step(tb.ones((2, 4), device="cpu"))
        return len(step.this_rank.graphs), step.this_rank.breaks

    assert dist.run_ranks(rank, 2) == [(1, [])] * 2


@pytest.mark.parametrize("spread", [dist.replicate, divided], ids=lambda f: f.__name__)
def test_a_module_that_moves_afterwards_computes_there(spread: Callable[..., Any]) -> None:
    def rank() -> Any:
        model = spread(Net()).to("refdev")
        x = X[4 * dist.get_rank() :][:4].to("refdev")
        model(x).sum().backward()
        parts = [p.grad.full_tensor() if isinstance(p, dist.DTensor) else p.grad for p in model.parameters()]
        return {g.device.type for g in parts}, [g.to("cpu").numpy() for g in parts]

    (places, got), (_, others) = dist.run_ranks(rank, 2)
    assert places == {"refdev"}
    assert all((g == other).all() for g, other in zip(got, others, strict=True))


class Tied(nn.Module):
    """A model whose embedding is its last layer's weight too, and whose inner layer runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.inner = nn.Embedding(11, 6, device="cpu"), nn.Linear(6, 6, device="cpu")
        self.head = nn.Linear(6, 11, bias=False, device="cpu")
        self.head.weight = self.words.weight

    def forward(self, tokens: tb.Tensor) -> tb.Tensor:
        """Return logits for each token."""
        return self.head(self.inner(tb.tanh(self.inner(self.words(tokens)))))


TOKENS = tb.arange(8, device="cpu").reshape((2, 4)) % 11
TIED = {name: value.clone() for name, value in Tied().state_dict().items()}


def replicated(model: Tied) -> Tied:
    """Let two ranks have the whole model."""
    return dist.replicate(model)


def in_parts(model: Tied) -> Tied:
    """Divide the inner layer, and what is left."""
    dist.fully_shard(model.inner)
    return dist.fully_shard(model)


def split_in_parts(model: Tied) -> Tied:
    """Split the layers, of which one weight is shared, and divide them."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    plan = {
        "words": dist.RowwiseParallel(input_layouts=dist.Replicate()),
        "inner": dist.ColwiseParallel(output_layouts=dist.Replicate()),
        "head": dist.ColwiseParallel(output_layouts=dist.Replicate()),
    }
    dist.parallelize_module(model, mesh["tp"], plan)
    dist.fully_shard(model.inner, mesh["dp"])
    return dist.fully_shard(model, mesh["dp"])


def steps(model: nn.Module, count: int) -> list[float]:
    """Return the losses of some steps, with a look at the model after each."""
    optimizer, seen = optim.AdamW(model.parameters(), lr=0.05), []
    for _ in range(count):
        loss = nn.functional.cross_entropy(model(TOKENS).reshape((-1, 11)), TOKENS.reshape((-1,)))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss.item())
        with tb.no_grad():
            model.eval()(TOKENS)
        model.train()
    return seen


@pytest.mark.parametrize("spread", [replicated, in_parts, split_in_parts], ids=lambda f: f.__name__)
def test_whole_states_copies_and_failures(spread: Callable[[Tied], Tied], tmp_path: Path) -> None:
    model = Tied()
    model.load_state_dict(TIED)
    expected = steps(model, 3)

    def rank() -> Any:
        model = spread(Tied())
        model.load_state_dict(TIED)  # whole tensors, the same on each rank
        failing = model.inner.register_forward_hook(lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            model(TOKENS)
        failing.remove()
        copied = deepcopy(model)
        path = tmp_path / f"{dist.get_rank()}.npz"
        tb.save(model.state_dict(), path)
        losses = steps(model, 3)
        assert copied.head.weight is copied.words.weight
        again = spread(Tied())
        again.load_state_dict(tb.load(path))
        return losses, steps(copied, 3), steps(again, 3)

    for results in dist.run_ranks(rank, 4 if spread is split_in_parts else 2):
        for losses in results:
            assert_alike(losses, expected, roundings=1 << 9)  # three steps, each of sums in another order


def test_a_run_that_did_not_begin_leaves_nothing_behind() -> None:
    """Another rank has left: the error is told alone, and the module is as it was."""

    def rank() -> Any:
        layer = dist.fully_shard(nn.Linear(2, 2, device="cpu"), reshard_after_forward=True)
        x = tb.ones((1, 2), device="cpu")
        layer(x)
        if dist.get_rank() == 0:
            return None
        with pytest.raises(dist.DistributedError, match="rank 0 will not come") as caught:
            layer(x)
        assert not getattr(caught.value, "__notes__", [])
        return layer._group.depth

    assert dist.run_ranks(rank, 2)[1] == 0
