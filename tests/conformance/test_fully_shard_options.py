"""Options of divided modules: gradients are those of one rank, by no more collectives than they need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn

from error_bounds import assert_alike

BATCHES = 3
ROUNDINGS = 512
"""Of four layers, their derivatives, three batches, and the average over ranks."""
X = tb.randn(BATCHES, 8, 6, device="cpu")


class Net(nn.Module):
    """Layers of lengths that no number of ranks divides, and a parameter of the whole."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 7, device=device), nn.Linear(7, 5, device=device)
        self.c = nn.Linear(5, 3, device=device)
        self.scale = nn.Parameter(tb.ones(3, device=device))

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Run the layers."""
        return self.c(tb.tanh(self.b(tb.tanh(self.a(x))))) * self.scale


STATE = {name: value.clone() for name, value in Net().state_dict().items()}
Prepare = Callable[[Any, bool], object]
"""Given the model, and whether the batch is the last."""


def every(name: str, *args: Any) -> Prepare:
    """Call a method of each divided module."""
    return lambda model, last: [getattr(m, name)(*args) for m in (model.a, model.b, model.c, model)]


def last_axis(p: nn.Parameter) -> dist.Shard:
    """Divide each parameter along its last axis."""
    return dist.Shard(-1)


def reduced(model: Any, last: bool) -> None:
    """Add up whole gradients until the last batch."""
    model.set_requires_gradient_sync(last)


def summed(model: Any, last: bool) -> None:
    """Add up whole gradients, of whole parameters, until the last batch."""
    model.set_requires_gradient_sync(last)
    model.set_reshard_after_backward(last)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is set, the calls that three batches of four groups take, and what gradients are multiplied by.

    ``apart`` are gathers where each batch is a program, which keeps nothing whole for the next.
    """

    gathers: int
    apart: int | None = None
    scatters: int = 12
    sums: int = 0
    size: int = 2
    mesh: tuple[int, ...] | None = None
    listed: bool = False
    prepare: Prepare = lambda model, last: None
    factor: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)


STAYS: dict[str, Any] = {"reshard_after_forward": False}
CASES = {
    "the outermost stays": Case(gathers=21),
    "all go": Case(gathers=24, options={"reshard_after_forward": True}),
    "all stay": Case(gathers=12, options={"reshard_after_forward": False}),
    "all stay, set": Case(gathers=12, prepare=lambda m, last: m.set_reshard_after_forward(False)),
    "parts stay nearby": Case(gathers=24, size=4, options={"reshard_after_forward": 2}),
    "nearby are all": Case(gathers=24, options={"reshard_after_forward": 2}),
    "nearby is one": Case(gathers=12, options={"reshard_after_forward": 1}),
    "modules in a list": Case(gathers=15, scatters=9, listed=True),
    "along the last axis": Case(gathers=21, options={"shard_placement_fn": last_axis}),
    "along the last axis, nearby": Case(
        gathers=24, size=4, options={"shard_placement_fn": last_axis, "reshard_after_forward": 2}
    ),
    "reduced at the last": Case(gathers=21, scatters=4, prepare=reduced),
    "kept whole between": Case(gathers=4, apart=12, scatters=4, prepare=summed, options=STAYS),
    "kept whole after backward": Case(
        gathers=16, apart=24, scatters=4, prepare=summed, options={"reshard_after_forward": True}
    ),
    "copies reduced at the last": Case(
        gathers=21, sums=4, size=4, mesh=(2, 2), prepare=lambda m, last: m.set_requires_all_reduce(last)
    ),
    "waited for at the last": Case(gathers=21, prepare=lambda m, last: m.set_is_last_backward(last)),
    "sums alone": Case(
        gathers=21, sums=12, size=4, mesh=(2, 2), prepare=every("set_force_sum_reduction_for_comms", True)
    ),
    "nothing ahead of derivatives": Case(gathers=21, prepare=every("set_unshard_in_backward", False)),
    "changed by a hook": Case(
        gathers=21, factor=2, prepare=every("set_all_reduce_hook", lambda g: g.mul_(2))
    ),
    "other divisors": Case(gathers=21, factor=2, prepare=every("set_gradient_divide_factor", 1.0)),
}  # fmt: skip
COMPILED = ["parts stay nearby", "modules in a list", "along the last axis, nearby", "kept whole between"]


def divided(case: Case, device: str) -> Net:
    model = Net(device)
    model.load_state_dict(STATE)
    mesh = None if case.mesh is None else dist.init_device_mesh(None, case.mesh)
    blocks: list[Any] = [[model.a, model.b], model.c] if case.listed else [model.a, model.b, model.c]
    for block in (*blocks, model):
        assert dist.fully_shard(block, mesh, **case.options) is block
    return model


def run(case: Case, device: str, mode: str) -> tuple[list[tb.Tensor], Counter[str]]:
    """Return gradients of the batches, the second time, and how many collectives these took."""
    model, size = divided(case, device), 8 // dist.get_world_size()
    mine = X[:, size * dist.get_rank() : size * dist.get_rank() + size].to(device)

    def batch(x: tb.Tensor) -> None:
        model(x).square().mean().backward()

    def batches(x: tb.Tensor, each: Callable[[tb.Tensor], object]) -> None:
        for number in range(BATCHES):
            case.prepare(model, number == BATCHES - 1)
            each(x[number])

    if mode == "one program":
        call = tb.compile(lambda x: batches(x, batch), fullgraph=True)
    else:
        one = tb.compile(batch) if mode == "a program a batch" else batch
        call = lambda x: batches(x, one)  # noqa: E731
    for _ in range(2):
        model.zero_grad()
        before = len(dist.records())
        call(mine)
        calls = Counter(record.operation for record in dist.records()[before:])
    assert all(isinstance(p, dist.DTensor) for p in (*model.parameters(), *model.state_dict().values()))
    return [p.grad.full_tensor() for p in model.parameters()], calls


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(name, mode, marks=() if mode == "eager" or name in COMPILED else pytest.mark.full)
        for name in CASES
        for mode in ("eager", "one program", "a program a batch")
    ],
)
def test_gradients_of_several_batches(name: str, mode: str, device: str) -> None:
    case = CASES[name]
    alone = Net()
    alone.load_state_dict(STATE)
    for x in X:
        alone(x).square().mean().backward()
    right = [case.factor * p.grad.numpy() for p in alone.parameters()]
    for gradients, calls in dist.run_ranks(run, case.size, case, device, mode, timeout=120):
        assert_alike([g.numpy() for g in gradients], right, ROUNDINGS)
        gathers = case.apart if case.apart and mode == "a program a batch" else case.gathers
        expected = Counter(all_gather=gathers, reduce_scatter=case.scatters, all_reduce=case.sums)
        assert calls == expected  # a Counter leaves zeros out of the comparison


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("reshard", [None, False, True, 2])
def test_whole_parameters_are_those_of_parts_that_have_changed(reshard: Any, compiled: bool) -> None:
    """Evaluated, which keeps them whole, trained, evaluated, loaded, by programs and by Python."""

    def losses(model: Net, compiled: bool) -> list[float]:
        optimizer = tb.optim.SGD(model.parameters(), lr=0.1)

        def evaluate(x: tb.Tensor) -> tb.Tensor:
            with tb.no_grad():
                return model(x).square().mean()

        def train(x: tb.Tensor) -> tb.Tensor:
            for _ in range(2):
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            return loss.detach()

        calls = [tb.compile(f) if compiled else f for f in (evaluate, train)]
        seen = []
        for x in (*X, *X):
            seen += [call(x).item() for call in (calls[0], calls[1], calls[0], evaluate)]
            model.load_state_dict({name: 1.01 * value for name, value in model.state_dict().items()})
        return seen

    alone = Net()
    alone.load_state_dict(STATE)
    right = losses(alone, False)
    options = {"reshard_after_forward": reshard}
    run = lambda: losses(divided(Case(gathers=0, options=options), "cpu"), compiled)  # noqa: E731
    for got in dist.run_ranks(run, 4, timeout=120):
        assert_alike(got, right, 8 * ROUNDINGS)


def test_modules_of_a_list_run_in_part_and_alone() -> None:
    """A head that ran alone, chunk by chunk, after the model had left it out."""

    def rank(listed: bool) -> list[Any]:
        model = divided(Case(gathers=0, listed=listed), "cpu")
        x = X[0][4 * dist.get_rank() :][:4]
        hidden = model.a(x)  # the second of the list does not run
        grown = [part.detach().requires_grad_() for part in tb.split(hidden, 2)]
        for part in grown:
            model.b(part).square().sum().backward()
        hidden.backward(tb.concat([part.grad for part in grown]))
        copied = deepcopy(model)
        assert copied(x).shape == (4, 3)
        assert (copied.a._group is copied.b._group) == listed
        return [p.grad.full_tensor().numpy() for m in (model.a, model.b) for p in m.parameters()]

    for alone, together in zip(dist.run_ranks(rank, 2, False), dist.run_ranks(rank, 2, True), strict=True):
        assert_alike(together, alone, ROUNDINGS)


def test_the_state_of_a_module_is_in_parts_while_it_is_whole() -> None:
    def rank() -> Any:
        model = divided(Case(gathers=0), "cpu")
        model.a.unshard()
        assert not isinstance(model.a.weight, dist.DTensor)
        assert isinstance(model.state_dict()["a.weight"], dist.DTensor)
        model.load_state_dict({name: value * 2 for name, value in STATE.items()})
        model.to(tb.float64)
        model(X[0].to(tb.float64))
        return model.a.weight.dtype, model.a.weight.full_tensor().numpy()

    for dtype, value in dist.run_ranks(rank, 2):
        assert dtype == tb.float64
        assert (value == 2 * STATE["a.weight"].numpy()).all()


def test_a_parameter_that_takes_the_place_of_another() -> None:
    def rank() -> Any:
        model = divided(Case(gathers=0), "cpu")
        model.a.weight = nn.Parameter(2 * model.a.weight.detach())
        model(X[0]).sum().backward()
        assert model.a.weight.grad is not None
        return model.a(X[0]).numpy()

    alone = Net()
    alone.load_state_dict(STATE | {"a.weight": 2 * STATE["a.weight"]})
    for out in dist.run_ranks(rank, 2):
        assert_alike(out, alone.a(X[0]).detach().numpy(), ROUNDINGS)


class Failing(nn.Module):
    """A layer that fails, forward or in its derivative, when told to."""

    where = ""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6, device="cpu")

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Run the layer, or fail."""
        y = self.layer(x)
        if self.where == "forward":
            raise ZeroDivisionError
        if self.where == "backward":
            y.register_hook(lambda g: 1 // 0)
        return y


def in_parts(model: nn.Module, **options: Any) -> nn.Module:
    for block in (*model, model):
        dist.fully_shard(block, **options)
    return model


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize(
    "spread",
    [dist.replicate, in_parts, lambda model: in_parts(model, reshard_after_forward=False)],
    ids=["replicate", "fully_shard", "fully_shard, whole"],
)
def test_a_step_after_one_that_failed(spread: Callable[[nn.Module], nn.Module], where: str) -> None:
    """Nothing of the gradients that had come by then is left."""

    def rank() -> list[Any]:
        model = spread(nn.Sequential(*[Failing() for _ in range(3)]))
        model.load_state_dict({name: 0.1 * tb.ones_like(value) for name, value in model.state_dict().items()})
        x = X[0][4 * dist.get_rank() :][:4]
        for failing in (True, False):
            model[0].where = where if failing else ""
            try:
                model(x).sum().backward()
            except ZeroDivisionError:
                assert failing
                assert all(p.grad is None for p in model.parameters())
        return [g.full_tensor() if isinstance(g := p.grad, dist.DTensor) else g for p in model.parameters()]

    got = dist.run_ranks(rank, 2)
    right = dist.run_ranks(rank, 1)[0]  # of the first half: that of all is the mean
    ones = [g.numpy() for g in got[0]]
    assert all((a == b.numpy()).all() for a, b in zip(ones, got[1], strict=True))
    assert_alike(ones[-1], right[-1].numpy(), ROUNDINGS)


def test_parameters_and_buffers_move_to_the_devices_of_the_mesh() -> None:
    def rank() -> Any:
        mesh, other = (dist.init_device_mesh(kind, (2,)) for kind in ("refdev", "cpu"))
        with tb.device("cpu"):
            model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        copied = deepcopy(model)
        mine = X[0, 4 * dist.get_rank() :][:4]
        dist.fully_shard(model[1], mesh)
        dist.fully_shard(model, mesh)
        model(mine.to("refdev")).sum().backward()
        dist.fully_shard(copied, other)(mine).sum().backward()
        here = [*model.buffers(), *(p.to_local() for p in model.parameters())]
        assert {x.device.type for x in here} == {"refdev"}
        pairs = [
            (a.grad.full_tensor(), b.grad.full_tensor())
            for a, b in zip(model.parameters(), copied.parameters(), strict=True)
        ]
        return [(a.to("cpu").numpy(), b.numpy()) for a, b in pairs]

    for pairs in dist.run_ranks(rank, 2):
        for a, b in pairs:
            assert_alike(a, b, roundings=64)  # two devices' sums over a batch
