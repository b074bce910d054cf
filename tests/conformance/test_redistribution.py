"""Tensors on the ranks of a mesh: every placement to every other, values and gradients, uneven and nested."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.distributed.tensor.redistribute import plan

from error_bounds import assert_within, gamma

R, S, P = dist.Replicate(), dist.Shard, dist.Partial()
SHAPES = ((5, 3), (0, 3))


def everywhere(mesh_shape: tuple[int, ...], shape: tuple[int, ...], device: str) -> None:
    """On a rank: lay a tensor out in each way, change to each other, and go back by the derivative."""
    mesh = dist.init_device_mesh(None, mesh_shape)
    rank = dist.get_rank()
    rounded = gamma(int(np.prod(mesh_shape)) + 2, "float32")  # parts are added up, or divided by how many
    whole = np.random.default_rng(0).standard_normal(shape).astype("float32")
    weight = np.random.default_rng(1).standard_normal(shape).astype("float32")
    single = (R, S(0), S(1), P, dist.Partial("average"))[: 5 if len(mesh_shape) == 1 else 4]
    layouts = [*itertools.product(single, repeat=len(mesh_shape))]
    if len(mesh_shape) == 2:
        layouts += [(dist.StridedShard(axis), S(axis)) for axis in range(2)]
    replicated = dist.distribute_tensor(tb.asarray(whole + rank, device=device), mesh)
    w = dist.distribute_tensor(tb.asarray(weight, device=device), mesh)
    for source, target in itertools.product(layouts, layouts):
        x = replicated.detach().requires_grad_()
        y = x.redistribute(source).redistribute(target)
        assert y.shape == shape
        assert y.placements == target
        result = np.asarray(y.full_tensor().tolist()).reshape(shape)
        assert_within(result, whole, rounded * abs(whole))
        product = dist.local_map(lambda a, b: (a * b).sum(), [P] * len(mesh_shape), [S0s(mesh), S0s(mesh)])
        product(y, w).backward()
        assert x.grad is not None
        gradient = np.asarray(x.grad.full_tensor().tolist()).reshape(shape)
        assert_within(gradient, weight, rounded * abs(weight), f"{source} to {target}")


def compiled_everywhere(size: int, shape: tuple[int, ...], device: str) -> None:
    """On a rank: a program sends what the function does, in its order, also where this rank uses none."""
    mesh = dist.init_device_mesh(None, (size,))
    layouts = (R, S(0), S(1), P, dist.Partial("average"))

    def changed(x: Any) -> list[Any]:
        ways = itertools.product(layouts, layouts)
        return [x.redistribute([a]).redistribute([b]).to_local() * 2 for a, b in ways]

    x = dist.distribute_tensor(tb.ones(shape, device=device), mesh)
    calls, numbers = [], []
    for run in (changed, tb.compile(changed, fullgraph=True)):
        before = len(dist.records())
        numbers.append([y.tolist() for y in run(x)])
        calls.append([(r.operation, r.shapes) for r in dist.records()[before:]])
    assert numbers[0] == numbers[1]
    assert calls[0] == calls[1]


def S0s(mesh: Any) -> list[Any]:
    return [S(0)] * mesh.ndim


@pytest.mark.parametrize("shape", SHAPES[:1])
def test_every_placement_to_every_other(device: str, shape: tuple[int, ...]) -> None:
    dist.run_ranks(everywhere, 2, (2,), shape, device)
    dist.run_ranks(compiled_everywhere, 2, 2, shape, device)


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mesh", [(3,), (2, 2)])
def test_every_placement_on_larger_meshes(device: str, mesh: tuple[int, ...], shape: tuple[int, ...]) -> None:
    dist.run_ranks(everywhere, int(np.prod(mesh)), mesh, shape, device)


def test_the_plan_sends_the_fewest_elements() -> None:
    def names(source: Any, target: Any, sizes: tuple[int, ...] = (2,)) -> list[tuple[int, Any, Any]]:
        return [step[:3] for step in plan((8, 8), sizes, source, target)]

    assert names((P,), (S(1),)) == [(0, P, S(1))]
    assert names((S(0),), (S(1),)) == [(0, S(0), S(1))]
    assert names((R,), (S(1),)) == [(0, R, S(1))]
    assert names((R, P), (S(0), R), (2, 2)) == [(0, R, S(0)), (1, P, R)]  # half is added up
    assert names((S(0), S(0)), (R, S(0)), (2, 2))[0][0] == 1  # the inner part first


def test_meshes() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2, 3), mesh_dim_names=("dp", "tp"))
        assert mesh["tp"].get_group() is mesh.get_group(1)
        assert mesh["dp", "tp"] == mesh
        assert (mesh.size(), mesh.size("tp"), mesh.get_local_rank("dp")) == (6, 3, dist.get_rank() // 3)
        with pytest.raises(tb.ArgumentError, match="one dimension of"):
            mesh.get_group()
        with pytest.raises(tb.ArgumentError, match="in the mesh's order"):
            mesh["tp", "dp"]
        with pytest.raises(tb.ArgumentError, match="the number of ranks, 6"):
            dist.init_device_mesh(None, (2, 2))
        with pytest.raises(tb.ArgumentError, match="2 dimensions, got"):
            dist.distribute_tensor(tb.ones(2), mesh, [R])
        with pytest.raises(tb.AxisError, match="tensor of 1 dimensions"):
            dist.distribute_tensor(tb.ones(2), mesh, [R, S(1)])
        return mesh.get_coordinate()

    assert dist.run_ranks(rank, 6) == [*itertools.product(range(2), range(3))]
    with pytest.raises(tb.ArgumentError, match="reduction must be one of"):
        dist.Partial("mean")
    average = dist.Partial("avg")
    assert (average, average.reduce_op) == (dist.Partial("average"), "avg")
    assert all(map(average.is_partial, (None, "avg", "average")))
    assert not P.is_partial("avg")


def test_parts_on_several_types_of_devices() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        x = tb.arange(3, dtype="float32", device=("cpu", "refdev")[dist.get_rank()])
        y = dist.distribute_tensor(x, mesh, [S(0)])
        return y.to_local().device.type, y.full_tensor().tolist()

    assert dist.run_ranks(rank, 2) == [("cpu", [0, 1, 2]), ("refdev", [0, 1, 2])]


FIRST: dict[str, tuple[str, str]] = {
    "several types": ("cpu", "refdev"), "one type": ("cpu", "cpu"), "another": ("refdev", "refdev"),
}  # fmt: skip
"""The devices of two ranks at their first collective."""


@pytest.mark.parametrize("first", FIRST)
def test_ranks_use_one_type_after_the_other(first: str) -> None:
    """What connects them on some types is that of all that it takes: they need not agree once more."""

    def rank() -> Any:
        here, seen = dist.get_rank(), []
        for devices in (FIRST[first], ("refdev", "cpu"), ("cpu", "cpu"), ("refdev", "refdev")):
            seen.append(dist.functional.all_reduce(tb.ones(2, device=devices[here])).tolist())
            objects = [None, None]
            dist.all_gather_object(objects, here)
            assert objects == [0, 1]
        dist.barrier()
        return seen

    assert dist.run_ranks(rank, 2, timeout=20) == [[[2, 2]] * 4] * 2


def test_a_shared_part_gets_the_sum_of_its_gradients(device: str) -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        x = dist.distribute_tensor(tb.ones((3, 2), device=device), mesh, [S(0)])
        w = dist.distribute_tensor(tb.ones(2, device=device), mesh).requires_grad_()
        loss = dist.local_map(lambda a, b: (a * b).sum(), [P], [[S(0)], [R]], [None, [P]])
        loss(x, w).backward()
        with pytest.raises(tb.ShapeError, match="this rank has a part of shape"):
            dist.DTensor.from_local(tb.ones(7, device=device), mesh, [S(0)], shape=(3,))
        with pytest.raises(tb.ShapeError, match="parts of different shapes"):
            dist.local_map(tb.exp, [S(0)], [[S(0)]])(x)
        assert w.grad is not None
        return w.grad.full_tensor().tolist()

    assert dist.run_ranks(rank, 2) == [[3, 3]] * 2


def test_explain_shows_the_collectives(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,), mesh_dim_names=("dp",))
        x = dist.distribute_tensor(tb.ones((4, 6), device=device), mesh, [S(0)])
        return tb.explain(lambda: x.redistribute(placements=[S(1)])).remarks

    for number, remarks in enumerate(dist.run_ranks(rank, 2)):
        how, call = remarks
        assert how == (
            "redistribute(float32[4, 6]) on a mesh of (2,), from [Shard(dim=0)] to [Shard(dim=1)]:"
            " all_to_all, each rank sends 24 bytes"
        )
        assert call.startswith(f"all_to_all of float32 on {tb.Device(device)}, call ")
        assert call.endswith(", by threads"), number
    assert "each rank sends 24 bytes" in capsys.readouterr().out


def test_explain_shows_what_an_op_redistributes(device: str) -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        x, y = (dist.distribute_tensor(tb.ones((4, 6), device=device), mesh, [S(axis)]) for axis in range(2))
        explained = tb.explain("add", x, y)
        return {decision.op.name for decision in explained.decisions}, explained.remarks[0]

    results = dist.run_ranks(rank, 2)
    assert any("add" in names for names, _ in results)  # ranks of one process share plans: one makes it
    for _, remark in results:
        assert remark.endswith("from [Shard(dim=1)] to [Shard(dim=0)]: all_to_all, each rank sends 24 bytes")
