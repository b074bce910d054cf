"""Meshes of some ranks, of groups that are there, in a row, pickled, and what of them makes no sense."""

from __future__ import annotations

import copy
import pickle
from contextlib import nullcontext
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist

S, R, P = dist.Shard, dist.Replicate, dist.Partial
SIZE = 8
ARRAY = [[[0, 4], [7, 1]], [[6, 2], [3, 5]]]


@pytest.mark.parametrize("make", ["list", "tensor", "groups"])
def test_the_ranks_of_slices(make: str) -> None:
    """Along every set of dimensions, the ranks that share the other places, in the array's order."""
    numpy = pytest.importorskip("numpy")
    whole = numpy.array(ARRAY)
    names = ("pp", "dp", "tp")

    def rank() -> list[Any]:
        mesh = dist.DeviceMesh(
            "cpu", tb.asarray(ARRAY, device="cpu") if make == "tensor" else ARRAY, mesh_dim_names=names
        )
        if make == "groups":
            mesh = dist.DeviceMesh.from_group(mesh.get_all_groups(), "cpu", ARRAY, mesh_dim_names=names)
        here = mesh.get_rank()
        place = mesh.get_coordinate()
        assert whole[place] == here == dist.get_rank()
        assert (mesh.shape, mesh.ndim, mesh.size(), mesh.size("dp")) == ((2, 2, 2), 3, 8, 2)
        assert mesh.mesh.tolist() == ARRAY
        for chosen in (("pp",), ("dp",), ("tp",), ("pp", "dp"), ("pp", "tp"), ("dp", "tp"), names):
            part = mesh[chosen]
            index = tuple(slice(None) if name in chosen else place[k] for k, name in enumerate(names))
            assert part.mesh.tolist() == whole[index].tolist()
            assert (part.mesh_dim_names, part.root) == (chosen, mesh)
            assert (
                part[chosen[-1]].mesh.tolist()
                == mesh[chosen[-1]].mesh.tolist()
                == [*mesh.get_group(chosen[-1]).ranks]
            )
        total = tb.asarray([float(here)], device="cpu")
        dist.all_reduce(total, group=mesh.get_group("dp"))
        return [total.item(), float(whole[place[0], :, place[2]].sum())]

    assert all(got == right for got, right in dist.run_ranks(rank, SIZE, timeout=60))


def test_tensors_on_some_of_the_ranks() -> None:
    def rank() -> Any:
        mesh = dist.DeviceMesh("cpu", [3, 1], mesh_dim_names=("a",))
        x = tb.arange(5.0, device="cpu")
        if mesh.get_coordinate() is None:
            texts = []
            for call in (
                lambda: dist.distribute_tensor(x, mesh, [dist.Shard(0)]),
                lambda: dist.DTensor.from_local(x, mesh, [dist.Replicate()]),
                lambda: dist.rand(3, device_mesh=mesh), lambda: mesh.get_group(), lambda: mesh["a"],
                lambda: dist.fully_shard(tb.nn.Linear(2, 2, device="cpu"), mesh),
                lambda: dist.replicate(tb.nn.Linear(2, 2, device="cpu"), mesh),
                lambda: dist.parallelize_module(
                    tb.nn.Linear(2, 2, device="cpu"), mesh, dist.ColwiseParallel()
                ),
            ):  # fmt: skip
                with pytest.raises(tb.errors.ArgumentError) as raised:
                    call()
                texts.append(str(raised.value))
            return texts
        laid = dist.distribute_tensor(x, mesh, [dist.Shard(0)])
        model = dist.fully_shard(tb.nn.Linear(2, 3, device="cpu"), mesh)
        model(tb.ones((1, 2), device="cpu")).sum().backward()
        return laid.to_local().tolist(), (laid * 2).sum().item(), model.weight.grad.full_tensor().sum().item()

    outside, last, other, first = dist.run_ranks(rank, 4, timeout=60)
    assert first == ([0.0, 1.0, 2.0], 20.0, 6.0)
    assert last == ([3.0, 4.0], 20.0, 6.0)
    for texts, number in ((outside, 0), (other, 2)):
        for text in texts:
            assert f"rank {number} is not in DeviceMesh('cpu', (2,)" in text


@pytest.mark.parametrize(
    ("array", "names", "message"),
    [
        ([], None, "must be an array of different ranks"),
        (3, None, "must be an array of different ranks"),
        ([[0, 1], [2]], None, "must be an array of different ranks"),
        ([[0, 1], [2], [3, 4, 5]], None, "must be an array of different ranks"),
        ([0, 0], None, "must be an array of different ranks"),
        ([0, 9], None, "different ranks, 0 to 1"),
        ("01", None, "must be an array of different ranks"),
        ([0.0, 1.0], None, "must be an array of different ranks"),
        ([[0], [1]], ("dp",), "2 different words"),
        ([0, 1], "d", "1 different words"),
    ],
)
def test_meshes_that_make_no_sense(array: Any, names: Any, message: str) -> None:
    with pytest.raises(tb.errors.ArgumentError, match=message):
        dist.run_ranks(lambda: dist.DeviceMesh("cpu", array, mesh_dim_names=names), 2)


def test_groups_that_are_not_those_of_the_mesh() -> None:
    def rank() -> tuple[Any, ...]:
        group = dist.new_group()
        mesh = dist.DeviceMesh.from_group(group, "cpu", mesh_dim_names=("dp",))
        with pytest.raises(tb.errors.ArgumentError, match="mesh, the array of ranks, is needed for 2 groups"):
            dist.DeviceMesh.from_group([group, group], "cpu")
        with pytest.raises(tb.errors.ArgumentError, match="this rank's groups along the dimensions"):
            dist.DeviceMesh.from_group([group, group], "cpu", [[0, 1]])
        return mesh["dp"].get_group() is group, mesh.mesh.tolist()

    assert dist.run_ranks(rank, 2) == [(True, [0, 1])] * 2


def _total(mesh: Any, *placements: Any) -> float:
    x = dist.distribute_tensor(tb.arange(15, dtype="float32", device="cpu").reshape((5, 3)), mesh, placements)
    y = x.requires_grad_() @ dist.distribute_tensor(tb.ones((3, 4), device="cpu"), mesh)
    (y * y).sum().backward()
    assert x.grad.placements == x.placements
    total: float = x.grad.sum().item()
    return total


def test_dimensions_are_flattened_into_one_which_the_root_knows() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "cp", "tp"))
        part = mesh["dp", "tp"]
        flat = part.flatten()
        assert flat is mesh["dp_tp"] is part.flatten("dp_tp")
        assert (flat.mesh_dim_names, flat.get_group().ranks) == (
            ("dp_tp",),
            tuple(part.mesh.flatten().tolist()),
        )
        assert mesh.flatten("all")["all"].get_group().ranks == (*range(8),)
        for taken, flattened in {"cp": mesh, "dp_tp": mesh["dp", "cp"]}.items():
            with pytest.raises(tb.ArgumentError, match=f"or a flattened part '{taken}' already"):
                flattened.flatten(taken)
        return flat.get_local_rank(), _total(flat, S(0)), _total(mesh["all"], S(1))

    results = dist.run_ranks(rank, 8)
    assert [place for place, _, _ in results] == [0, 1, 0, 1, 2, 3, 2, 3]
    assert len({total for _, *totals in results for total in totals}) == 1


def test_a_flattened_part_is_a_dimension_of_slices() -> None:
    """Those of dimensions side by side and apart; layers split along one lie divided along the other."""

    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "cp", "tp"))
        front, outer = mesh["pp", "cp"].flatten("front"), mesh["pp", "tp"].flatten("outer")
        part, other = mesh["front", "tp"], mesh["outer", "cp"]
        assert part.mesh.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
        assert other.mesh.tolist() == [[0, 2], [1, 3], [4, 6], [5, 7]]
        assert part["front"].get_group() is front.get_group()
        assert outer.root is part.root is mesh
        assert part.flatten("all").mesh.tolist() == [*range(8)]
        assert pickle.loads(pickle.dumps(part)) == part
        for names in (("front", "cp"), ("tp", "front"), ("front", "outer")):
            with pytest.raises(tb.ArgumentError, match="different dimensions in the mesh's order"):
                mesh[names]
        layer = dist.parallelize_module(tb.nn.Linear(2, 10, device="cpu"), mesh["tp"], dist.ColwiseParallel())
        whole = layer.weight.full_tensor()
        weight = dist.fully_shard(layer, front).weight
        assert (weight.full_tensor() == whole).all()
        assert weight.device_mesh == part
        return weight.placements, len({_total(m, S(0), S(1)) for m in (part, other)})

    assert dist.run_ranks(rank, 8) == [((dist.StridedShard(0), S(0)), 1)] * 8


def test_a_dimension_becomes_several() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "rest"))
        split = mesh.unflatten("rest", (2, 2), ("cp", "tp"))
        assert split.mesh_dim_names == ("dp", "cp", "tp")
        assert split.mesh.tolist() == [
            [[0, 1], [2, 3]],
            [[4, 5], [6, 7]],
        ]
        assert split.get_group("dp") is mesh.get_group("dp")
        assert split["cp"].root is split
        for dim, sizes, names, message in (
            (1, (2, 3), ("a", "b"), "whose product is that of dimension 1, 4, got"),
            (1, (), (), "whose product"), ("rest", (2, 2), None, "2 different words"),
            (1, (2, 2), ("dp", "a"), "3 different words"), ("no", (2, 2), ("a", "b"), "one dimension of"),
        ):  # fmt: skip
            with pytest.raises(tb.ArgumentError, match=message):
                mesh.unflatten(dim, sizes, names)
        plain = dist.init_device_mesh("cpu", 8).unflatten(0, (4, 2))
        return plain.mesh_dim_names, split["tp"].get_local_rank(), _total(split["dp", "tp"], S(0), S(1))

    results = dist.run_ranks(rank, 8)
    assert [place for _, place, _ in results] == [0, 1] * 4
    assert {names for names, _, _ in results} == {None}
    assert len({total for *_, total in results}) == 1


def test_meshes_of_one_array_are_equal_and_lie_where_a_plugin_has_devices() -> None:
    def rank() -> None:
        mesh = dist.DeviceMesh("cpu", [1, 0])
        assert mesh == dist.DeviceMesh("cpu", tb.asarray([1, 0])) != dist.DeviceMesh("cpu", range(2))
        for make in (lambda kind: dist.DeviceMesh(kind, [0, 1]), lambda kind: dist.init_device_mesh(kind, 2)):
            for kind in ("cpuu", "cpu:0"):
                with pytest.raises(tb.DeviceError, match=f"got '{kind}'. Installed: .*. Did you mean 'cpu'"):
                    make(kind)

    dist.run_ranks(rank, 2)


def test_pickled_meshes_and_tensors_are_those_of_the_rank() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        group = dist.DeviceMesh.from_group(mesh.get_group("tp"), None)
        for each in (mesh, mesh["tp"], mesh["dp"].flatten("x"), group, dist.DeviceMesh(None, [3, 1, 0, 2])):
            assert pickle.loads(pickle.dumps(each)) == each
            assert copy.deepcopy(each) is each
        x = dist.distribute_tensor(tb.arange(5.0, device="cpu"), mesh, [S(0), S(0)])
        tensors = [
            x,
            x.redistribute([P(), R()]),
            tb.nn.Parameter(x),
            dist.fully_shard(tb.nn.Linear(3, 2)).weight,
        ]
        for each in tensors:
            again = pickle.loads(pickle.dumps(each))
            assert type(again) is type(each)
            assert (again.placements, again.requires_grad) == (each.placements, each.requires_grad)
            assert (again + each).tolist() == (each * 2).tolist()  # they lie on one mesh
        with pytest.raises(tb.AutogradError, match=r"cannot be pickled; use \.detach"):
            pickle.dumps(tensors[2] * 2)
        everywhere: list[Any] = [None] * 4
        dist.all_gather_object(everywhere, pickle.dumps(x))
        with pytest.raises(tb.ArgumentError, match="has that rank's part; this rank is at"):
            pickle.loads(everywhere[dist.get_rank() - 1])
        return pickle.loads(everywhere[dist.get_rank()]).tolist()

    assert dist.run_ranks(rank, 4) == [[0, 1, 2, 3, 4]] * 4


@pytest.mark.parametrize("rank_that_differs", [None, 1, 2])
def test_parts_that_are_the_same_on_each_rank(rank_that_differs: int | None) -> None:
    """Ranks compare what they call the same, if they are asked to, and all of a group are told."""

    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2, 2))
        own = tb.asarray([float("nan"), 1.0 + (dist.get_rank() == rank_that_differs)], device="cpu")
        alike = dist.DTensor.from_local(own, mesh, [dist.Replicate(), dist.Replicate()])
        assert alike.placements == dist.DTensor.from_local(own, mesh).placements
        shards = dist.DTensor.from_local(
            own, mesh, [dist.Shard(0)] * 2, run_check=True
        )  # nothing is the same
        assert shards.shape == (8,)
        pairs = {None: (), 1: (0, 1), 2: (2, 3)}
        differs = dist.get_rank() in pairs[rank_that_differs]
        message = "along dimension 1 of DeviceMesh.* other elements than rank"
        with pytest.raises(tb.errors.ArgumentError, match=message) if differs else nullcontext():
            dist.DTensor.from_local(own, mesh, [dist.Shard(0), dist.Replicate()], run_check=True)

    dist.run_ranks(rank, 4, timeout=60)
