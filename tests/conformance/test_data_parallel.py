"""Training on several ranks gives what training on one gives; each rule of data parallel modules holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn
from tensorbus.errors import ArgumentError, DistributedError

from error_bounds import assert_alike

BATCH = tb.randn(8, 6, device="cpu")


class Branches(nn.Module):
    """Two layers of which a batch may use one, and a buffer that the data change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, device="cpu")
        self.a = nn.Linear(6, 3, device="cpu")
        self.b = nn.Linear(6, 3, device="cpu")
        self.never = nn.Parameter(tb.ones(2, device="cpu"))

    def forward(self, x: tb.Tensor, use: str) -> tb.Tensor:
        """Return the sum of the layers that ``use`` names."""
        x = self.norm(x)
        y = self.a(x) if "a" in use else self.b(x)
        return y + self.b(x) if use == "ab" else y


def on_ranks(body: Callable[[nn.Module, tb.Tensor], Any], size: int = 2, **options: Any) -> list[Any]:
    """Return what ``body`` returns on each rank for a replicated module and the rank's part of the batch."""

    def rank() -> Any:
        model = Branches()
        part = 8 // size
        x = BATCH[dist.get_rank() * part : (dist.get_rank() + 1) * part]
        return body(dist.replicate(model, **options), x)

    return dist.run_ranks(rank, size)


@pytest.mark.parametrize("views", [True, False])
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_are_those_of_all_data(compiled: bool, views: bool) -> None:
    def body(model: Any, x: tb.Tensor) -> Any:
        model.never.requires_grad_(False)
        model.eval()

        def backward(x: tb.Tensor) -> None:
            (model(x, "ab") ** 2).mean().backward()

        run = tb.compile(backward, fullgraph=True) if compiled else backward
        run(x)
        with model.no_sync():  # adds up on each rank, and is averaged with what comes next
            backward(x)
        run(x)
        state = {k: v.tolist() for k, v in model.state_dict().items()}
        calls = [record.operation for record in dist.records()]
        return state, [p.grad.tolist() for p in model.parameters() if p.requires_grad], calls

    options = {"bucket_cap_mb": 1e-4, "gradient_as_bucket_view": views}
    (state, first, calls), (other_state, second, _) = on_ranks(body, **options)
    assert first == second
    assert state == other_state
    model = Branches().eval()
    model.load_state_dict({k: tb.asarray(v, device="cpu") for k, v in state.items()})
    (3 * (model(BATCH, "ab") ** 2).mean()).backward()
    whole = [p.grad for p in model.parameters() if p.grad is not None]
    for g, w in zip(first, whole, strict=True):
        assert_alike(tb.asarray(g, device="cpu"), w, roundings=64)  # sums of a batch, in three steps
    assert calls.count("all_reduce") == 2 * 3  # each of three buckets, in two of three steps


def test_a_compiled_step_is_one_program_in_which_buckets_do_not_wait_for_each_other() -> None:
    def body(model: Any, x: tb.Tensor) -> Any:
        model.never.requires_grad_(False)
        optimizer = tb.optim.AdamW(model.parameters())

        def step(x: tb.Tensor) -> tb.Tensor:
            loss = (model(x, "a") ** 2).mean() + model.b(x).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        run = tb.compile(step, fullgraph=True)
        for _ in range(3):
            run(x)
        captured = run.this_rank
        return [[node.op for node in graph] for graph in captured.graphs], captured.breaks

    for graphs, breaks in on_ranks(body, bucket_cap_mb=1e-4):
        (ops,) = graphs
        assert not breaks
        calls = [k for k, op in enumerate(ops) if op == "distributed::all_reduce"]
        assert len(calls) == 3
        assert calls[0] < max(k for k, op in enumerate(ops) if op in ("matmul", "sum"))


def test_what_some_ranks_do_not_use_counts_as_zero() -> None:
    def body(model: Any, x: tb.Tensor) -> Any:
        model(x, "ab"[dist.get_rank()]).sum().backward()
        return model.never.grad, model.a.bias.grad.tolist(), model.norm.running_mean.tolist()

    (first, second) = on_ranks(body, find_unused_parameters=True)
    assert first[:2] == second[:2] == (None, [2.0, 2.0, 2.0])
    with pytest.raises(DistributedError, match="'never'"):
        on_ranks(body)


@pytest.mark.parametrize("compiled", [False, True])
def test_layers_that_are_thawed_and_parameters_that_are_ignored(compiled: bool) -> None:
    def rank() -> Any:
        model = nn.Sequential(*[nn.Linear(2, 2, device="cpu") for _ in range(3)])
        model[0].requires_grad_(False)
        dist.replicate(model, ignored_params=model[2].parameters())
        x = tb.ones((1, 2), device="cpu") * (dist.get_rank() + 1)
        run = tb.compile(lambda x: model(x).square().sum()) if compiled else lambda x: model(x).square().sum()
        run(x).backward()
        model[0].requires_grad_(True)
        for _ in range(2):
            model.zero_grad()
            run(x).backward()
        return [[p.grad.numpy() for p in layer.parameters()] for layer in model]

    mine, other = dist.run_ranks(rank, 2)
    alike = [
        all((a == b).all() for a, b in zip(*pair, strict=True)) for pair in zip(mine, other, strict=True)
    ]
    assert alike == [True, True, False]


def test_buffers_are_those_of_the_first_rank() -> None:
    def body(model: Any, x: tb.Tensor) -> Any:
        seen = []
        model.norm.register_forward_pre_hook(lambda m, args: seen.append(m.running_mean.tolist()))
        with tb.no_grad():
            model(x, "a")
            model(x, "a")
        return seen

    first, second = on_ranks(body)
    assert first == second
    first, second = on_ranks(body, broadcast_buffers=False)
    assert first[0] == second[0]
    assert first[1] != second[1]


class Mixed(nn.Module):
    """Layers that share a weight, and a part that may be run again for its gradient."""

    checkpointed = False

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 7, device="cpu"), nn.Linear(7, 3, device="cpu")
        self.tied = nn.Linear(6, 7, bias=False, device="cpu")
        self.tied.weight = self.a.weight
        self.seen: list[Any] = []

    def inner(self, x: tb.Tensor) -> tb.Tensor:
        """Return what both layers make of ``x``."""
        self.seen.append((x.dtype, self.a.weight.dtype, self.tied.weight.dtype))
        return tb.tanh(self.a(x)) + self.tied(x)

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Return three numbers for each row."""
        return self.b(tb.checkpoint(self.inner, x) if self.checkpointed else self.inner(x))


MIXED = {name: value.clone() for name, value in Mixed().state_dict().items()}


@pytest.mark.parametrize("reduce_dtype", [None, tb.float32])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_dtypes_of_a_policy_are_those_of_a_divided_module(
    checkpointed: bool, compiled: bool, reduce_dtype: Any
) -> None:
    policy = dist.MixedPrecisionPolicy(tb.bfloat16, reduce_dtype, tb.float32)

    def rank(spread: Callable[..., Any]) -> Any:
        model: Any = Mixed()
        model.load_state_dict(MIXED)
        model.checkpointed = checkpointed
        spread(model, mp_policy=policy)
        optimizer = tb.optim.SGD(model.parameters(), lr=0.1)
        x = BATCH[dist.get_rank() * 4 :][:4]

        def step(x: tb.Tensor, is_last: bool) -> tb.Tensor:
            out = model(x)
            out.square().mean().backward()
            if is_last:
                optimizer.step()
                optimizer.zero_grad()
            return out.detach()

        run = tb.compile(step, fullgraph=True) if compiled else step
        outs = [run(x, True) for _ in range(3)]
        if reduce_dtype is not None:  # a divided module's gradients add up in that, ours in their own
            model.set_requires_gradient_sync(False)
            run(x, False)
            model.set_requires_gradient_sync(True)
            run(x, True)
        assert {*model.seen} == {(tb.bfloat16, tb.bfloat16, tb.bfloat16)}
        assert {out.dtype for out in outs} == {tb.float32}
        full = [p.full_tensor() if isinstance(p, dist.DTensor) else p for p in model.parameters()]
        return [x.detach().numpy() for x in (*outs, *full)]

    copies, parts = (dist.run_ranks(rank, 2, spread) for spread in (dist.replicate, dist.fully_shard))
    for mine, right in zip(copies, parts, strict=True):
        assert all((a == b).all() for a, b in zip(mine, right, strict=True))


MISTAKES: dict[str, Callable[[nn.Module], object]] = {
    "replicated already": lambda m: dist.replicate(dist.replicate(m)),
    "is a FullyShardedModule already": lambda m: dist.replicate(dist.fully_shard(m)),
    "bucket_cap_mb": lambda m: dist.replicate(m, bucket_cap_mb=0),
    "mp_policy is a MixedPrecisionPolicy or None, got 'bf16'": lambda m: dist.replicate(m, mp_policy="bf16"),
    "no parameter": lambda m: dist.replicate(m.requires_grad_(False)),
    "not both": lambda m: dist.replicate(
        m, dist.init_device_mesh("cpu", (1,)), process_group=dist.new_group()
    ),
    r"'never', 'norm.weight', 'norm.bias' and 4 more lie on 'cpu', and.*module.to\('refdev'\)": (
        lambda m: dist.replicate(m, dist.init_device_mesh("refdev", (1,)))
    ),
    r"a mesh of one dimension is needed.*pass a slice of it, such as mesh\['dp'\]": lambda m: dist.replicate(
        m, dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    ),
    "replicate: a module is needed, got 4": lambda m: dist.replicate(4),
    "replicate: a DeviceMesh is needed, as init_device_mesh makes one, got 4": lambda m: dist.replicate(m, 4),
}


def test_ranks_that_have_parts_of_a_parameter_get_no_copies_of_each_other() -> None:
    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        model = dist.parallelize_module(nn.Linear(4, 4, device="cpu"), mesh, dist.ColwiseParallel())
        dist.replicate(model)

    with pytest.raises(ArgumentError, match=r"'weight' lies as \[Shard\(dim=0\)\].*another dimension"):
        dist.run_ranks(rank, 2)


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        dist.run_ranks(lambda: MISTAKES[message](Branches()), 1)
