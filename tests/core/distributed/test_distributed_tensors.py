"""Ops on distributed tensors: what they give, where it lies, what changes in place and what is refused."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.library.shared_memory import shares_memory

from error_bounds import assert_alike

S, R, P = dist.Shard, dist.Replicate, dist.Partial


def _train(x: Any, w: Any, b: Any) -> list[float]:
    optimizer = tb.optim.AdamW([w, b], lr=1e-2)
    numbers = []
    for _ in range(2):
        optimizer.zero_grad()
        y = tb.nn.functional.gelu(x @ w + b)
        loss = (tb.nn.functional.softmax(y, -1) * y).mean()
        loss.backward()
        norm = tb.nn.utils.clip_grad_norm_([w, b], 0.1)
        optimizer.step()
        numbers += [loss.item(), norm.item()]
    if isinstance(w, dist.DTensor):
        states = [v for v in optimizer.state[w].values() if isinstance(v, tb.Tensor) and v.shape == w.shape]
        assert {v.placements for v in states} == {w.placements}
        w = w.full_tensor()
    return [*numbers, *w.flatten().tolist()]


def test_parameters_train_in_any_placements() -> None:
    generator = tb.Generator(0)
    arrays = [tb.normal(shape, generator=generator) for shape in ((5, 4), (4, 6), (6,))]
    x, w, b = arrays
    expected = _train(x, tb.nn.Parameter(w.clone()), tb.nn.Parameter(b.clone()))

    def rank() -> list[Any]:
        mesh = dist.init_device_mesh(None, (2,))
        results = []
        for places in itertools.product([S(0), S(1), R()], [S(0), S(1), R()], [S(0), R()]):
            laid = [dist.distribute_tensor(t.clone(), mesh, [p]) for t, p in zip(arrays, places, strict=True)]
            parameters = [tb.nn.Parameter(t) for t in laid[1:]]
            assert all(isinstance(p, tb.nn.Parameter) and isinstance(p, dist.DTensor) for p in parameters)
            results.append(_train(laid[0], *parameters))
            assert [p.placements for p in parameters] == [(p,) for p in places[1:]]
            assert [p.grad.placements for p in parameters] == [(p,) for p in places[1:]]
        return results

    for results in dist.run_ranks(rank, 2):
        for numbers in results:
            assert_alike(numbers, expected, roundings=2 * 24)  # two steps of sums of a batch and of a layer


def test_changes_in_place_keep_placements_and_reach_views() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        x = dist.distribute_tensor(tb.arange(12, dtype="float32").reshape((3, 4)), mesh, [S(0)])
        x += 1
        x[1] = 5
        x[:, 2] = tb.zeros(())
        x[0].mul_(10)
        x.masked_fill_(x > 100, -1)
        terms = x.redistribute([R()]).redistribute([P()])
        terms.add_(1)
        shown = terms.full_tensor().tolist()
        x.detach().zero_()
        like = tb.zeros_like(x)
        return shown, x.full_tensor().sum().item(), [t.placements[0] for t in (x, terms, like)]

    shown = [[11, 21, 1, 41], [6, 6, 1, 6], [10, 11, 1, 13]]
    assert dist.run_ranks(rank, 2) == [(shown, 0, [S(0), P(), S(0)])] * 2


def test_what_is_refused_says_what_to_do() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        x = dist.distribute_tensor(tb.ones((4, 2)), mesh, [S(0)])
        with pytest.raises(tb.DeviceError, match=r"Say how it lies: DTensor.from_local"):
            x + tb.ones((4, 2))
        assert (x + tb.ones(())).placements == x.placements
        with dist.explicit():
            with pytest.raises(
                dist.DistributedError, match=r"all_gather, for which each rank sends 16 bytes"
            ):
                x @ x.mT
            assert (x @ x.redistribute([R()]).mT).shape == (4, 4)
            with dist.explicit(False):
                assert (x @ x.mT).shape == (4, 4)

    dist.run_ranks(rank, 2)


@pytest.mark.parametrize(
    "operation", ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter"]
)
def test_what_one_rank_hands_to_another_lies_in_memory_of_its_own(operation: str) -> None:
    """Compiled programs write over operands, and over results, while other ranks still read."""

    def rank() -> Any:
        x = tb.ones(4)
        return x, getattr(dist.functional, operation)(x)

    operands, results = zip(*dist.run_ranks(rank, 2), strict=True)
    values = [x._value for x in (*operands, *results)]
    assert not any(shares_memory(a, b) for a, b in itertools.combinations(values, 2))


def test_the_device_of_a_distributed_tensor_answers_for_that_of_its_parts() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        here = dist.distribute_tensor(tb.ones(3, device="cpu"), mesh).device
        here.synchronize()
        here.reset_peak_memory_stats()
        return here.type, here.properties == tb.Device("cpu").properties, here.memory_stats().allocated >= 0

    assert dist.run_ranks(rank, 2) == [("mesh", True, True)] * 2


def test_a_tensor_whose_parts_move_says_where_they_are() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        x = dist.distribute_tensor(tb.ones(3, device="cpu"), mesh, [dist.Shard(0)]).requires_grad_()
        y = x.to("refdev")
        (y * 2).sum().backward()
        there = tb.zeros(2, device=y.device), y.detach() + 1, x.grad, y.detach().to("cpu")
        return y.device != x.device, [t.to_local().device.type for t in there], x.grad.full_tensor().tolist()

    expected = True, ["refdev", "refdev", "cpu", "cpu"], [2.0, 2.0, 2.0]
    assert dist.run_ranks(rank, 2) == [expected] * 2


def test_numpy_reads_the_whole_of_a_distributed_tensor_and_shares_no_memory() -> None:
    numpy = pytest.importorskip("numpy")

    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        x = dist.distribute_tensor(tb.arange(6, dtype="float32").reshape((3, 2)), mesh, [S(0)])
        for y in (x, x.redistribute([R()]), x.sum(0), x.clone().requires_grad_()):
            whole = y.numpy()
            for array in (numpy.asarray(y), numpy.array(y, dtype="float64")):
                assert array.shape == whole.shape
                assert (array == whole).all()
        assert numpy.array(x, dtype="float64").dtype == "float64"
        with pytest.raises(ValueError, match="is this rank's part"):
            x.__array__(copy=False)
        for share in (numpy.from_dlpack, lambda x: x.__buffer__(0)):
            with pytest.raises(BufferError, match=r"export x.to_local\(\), .* or x.full_tensor"):
                share(x)
        return numpy.asarray(x).tolist()

    assert dist.run_ranks(rank, 2) == [[[0, 1], [2, 3], [4, 5]]] * 2


MISTAKES: dict[str, Callable[[Any, Any], Any]] = {
    "Shard: dim must be an int, got '0'": lambda x, mesh: S("0"),
    "Shard: dim must be an int, got True": lambda x, mesh: S(True),
    r"placements are a list.*\[Shard\(dim=0\)\]": lambda x, mesh: dist.distribute_tensor(x, mesh, S(0)),
    "got \\['S\\(0\\)'\\]": lambda x, mesh: dist.distribute_tensor(x, mesh, ["S(0)"]),
    "distribute_tensor: a tensor is needed, got list": lambda x, mesh: dist.distribute_tensor([1], mesh),
    "from_local: a tensor is needed, got float": lambda x, mesh: dist.DTensor.from_local(1.0, mesh, [R()]),
    "2 entries, one for each result, but the function returned 1": lambda x, mesh: dist.local_map(
        lambda part: part, [[R()], [R()]], [[R()]]
    )(dist.distribute_tensor(x, mesh)),
    "a function of ranks' parts is needed, got 3": lambda x, mesh: dist.local_map(3, [S(0)]),
    "out_placements is a list.*got Shard": lambda x, mesh: dist.local_map(abs, S(0), [[R()]]),
    "out_placements is a list.*got None": lambda x, mesh: dist.local_map(abs, None, [[R()]]),
    "in_placements is a list.*got \\[Shard": lambda x, mesh: dist.local_map(abs, [S(0)], [S(0)]),
    "argument 0: a placement .* got \\[Shard\\(dim=0\\), Rep": lambda x, mesh: dist.local_map(
        abs, [S(0)], [[S(0), R()]]
    )(dist.distribute_tensor(x, mesh)),
    "a DTensor needs an entry.*got int": lambda x, mesh: dist.local_map(
        abs, [S(0)], [[S(0)]]
    )(3),
    "keyword arguments are handed on.*y is a DTensor": lambda x, mesh: dist.local_map(abs, [R()])(
        dist.distribute_tensor(x, mesh), y=dist.distribute_tensor(x, mesh)
    ),
    "result 0 is to lie as .*got float": lambda x, mesh: dist.local_map(lambda part: 1.0, [R()])(
        dist.distribute_tensor(x, mesh)
    ),
    "result 1 is a tensor, for which out_placements has None": lambda x, mesh: dist.local_map(
        lambda part: (part, part), [[R()], None]
    )(dist.distribute_tensor(x, mesh)),
    "result 0: a placement": lambda x, mesh: dist.local_map(abs, [R(), R()])(
        dist.distribute_tensor(x, mesh)
    ),
    "got a DTensor in \\[Replicate\\(\\)\\]": lambda x, mesh: dist.distribute_tensor(
        dist.distribute_tensor(x, mesh), mesh, [S(0)]
    ),
    "gradient of a part is Shard where": lambda x, mesh: (
        dist.distribute_tensor(x.requires_grad_(), mesh, [S(0)]).to_local(grad_placements=[P()])
    ),
    "grad_placements .*'max'": lambda x, mesh: (
        dist.distribute_tensor(x.requires_grad_(), mesh).to_local(grad_placements=[P("max")])
    ),
    "a DeviceMesh is needed.*got None": lambda x, mesh: dist.distribute_tensor(x, None),
    "a DeviceMesh is needed.*got 'cpu'": lambda x, mesh: dist.DTensor.from_local(x, "cpu", [R()]),
    "a slice takes names of": lambda x, mesh: mesh[0],
    "its lengths must be >= 1": lambda x, mesh: dist.init_device_mesh("cpu", (2.0,)),
    "1 different words, as .*got 'a'": lambda x, mesh: dist.init_device_mesh("cpu", 2, mesh_dim_names="a"),
    "1 different words.*got \\(1,\\)": lambda x, mesh: dist.init_device_mesh("cpu", 2, mesh_dim_names=(1,)),
    "2 different words.*got \\('a', 'a'\\)":
        lambda x, mesh: dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("a", "a")),
}  # fmt: skip


def test_what_makes_no_sense_is_named() -> None:
    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", 2, mesh_dim_names=("tp",))
        other = dist.init_device_mesh("cpu", (1, 2))
        x: Any = tb.ones(3, device="cpu")
        for message, call in MISTAKES.items():
            with pytest.raises(tb.ArgumentError, match=message):
                call(x, mesh)
        assert mesh["tp"] == mesh
        assert dist.init_device_mesh("cpu", 2, mesh_dim_names=["tp"]) is mesh is not other
        x = dist.distribute_tensor(x, mesh)
        assert (
            x.redistribute(mesh, [S(0)]).placements == (S(0),) == x.redistribute(placements=[S(0)]).placements
        )
        for call in (x.redistribute, lambda: x.redistribute(mesh), lambda: x.redistribute(other, [S(0)])):
            with pytest.raises(tb.ArgumentError, match=r"redistribute: placements on DeviceMesh.*are needed"):
                call()

    dist.run_ranks(rank, 2)


ALIKE: dict[str, Callable[[Any, Any], Any]] = {
    "a slice of an axis of length 1": lambda x, rows: x[:1][..., ::2],
    "rows by numbers": lambda x, rows: x[rows],
    "assignment to rows by numbers": lambda x, rows: x.clone().__setitem__(rows, 0),
    "assignment to a slice": lambda x, rows: x.clone().__setitem__(0, 1),
    "rows by a mask": lambda x, rows: x[rows > 0],
    "assignment by a mask": lambda x, rows: x.clone().__setitem__(x > 0, 1),
    "a reshape to the same shape": lambda x, rows: x[:1].reshape((1, 2)),
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_a_rank_calls_hangs_on_no_mode_of_another_thread(name: str) -> None:
    """Ranks that are threads would else ask for different things, by chance."""

    def rank() -> list[str]:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = dist.distribute_tensor(tb.ones((3, 2), device="cpu"), mesh, [S(0)])
        rows = dist.distribute_tensor(tb.asarray([1, 0, 2], device="cpu"), mesh)
        before = len(dist.records())
        ALIKE[name](x, rows)
        return [str(call) for call in dist.records()[before:]]

    def transform() -> None:
        def wait(x: Any) -> Any:
            entered.set()
            assert leave.wait(60)
            return x

        tb.vmap(wait)(tb.ones(2, device="cpu"))

    entered, leave = threading.Event(), threading.Event()
    alone = dist.run_ranks(rank, 2)
    thread = threading.Thread(target=transform)
    thread.start()
    try:
        assert entered.wait(60)
        assert dist.run_ranks(rank, 2) == alone
    finally:
        leave.set()
        thread.join()


def test_views_change_in_place_under_transforms() -> None:
    """What communicates then may hold no lock that another rank waits for."""

    def doubled(x: Any) -> Any:
        y = x * 1
        y[1:].mul_(3)
        return y

    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = dist.distribute_tensor(tb.ones((4, 2), device="cpu"), mesh, [S(0)])
        t = x.redistribute([S(1)])
        value, tangent = tb.func.jvp(doubled, (x,), (t,))
        return value.full_tensor().tolist() == tangent.full_tensor().tolist() == doubled(x).tolist()

    assert dist.run_ranks(rank, 2, timeout=60) == [True, True]


def test_results_of_a_function_of_parts_lie_as_each_entry_says() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = dist.distribute_tensor(tb.arange(4, dtype="float32", device="cpu"), mesh, [S(0)])
        both = dist.local_map(lambda part: (part * 2, part.sum()), [[S(0)], [P()]], [[S(0)]])(x)
        return [(y.placements[0], y.tolist()) for y in both]

    assert dist.run_ranks(rank, 2) == [[(S(0), [0, 2, 4, 6]), (P(), 6)]] * 2


def test_a_function_of_parts_takes_and_gives_what_is_no_tensor_too() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = dist.distribute_tensor(tb.arange(4, dtype="float32", device="cpu"), mesh, [S(0)])
        assert dist.distribute_tensor(x, mesh, [S(-1)]) is x
        scaled = dist.local_map(lambda part, by, plus=0: [part * by + plus, part.shape], [[S(0)], None])
        y, shape = scaled(x, 2, plus=1)
        return y.placements, y.tolist(), shape

    assert dist.run_ranks(rank, 2) == [((S(0),), [1, 3, 5, 7], (2,))] * 2


def test_autocast_concerns_distributed_tensors_by_the_device_of_parts_or_the_mesh() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        x = dist.distribute_tensor(tb.ones((4, 4), device="cpu"), mesh, [S(0)])
        results = []
        for kind in (x.device.type, "cpu", "refdev", None):
            with tb.autocast(kind, tb.bfloat16):
                results.append((x @ x).dtype is tb.bfloat16)
                results.append((x.to_local() @ x.to_local().mT).dtype is tb.bfloat16)
        return results

    assert dist.run_ranks(rank, 2) == [[True, False, True, True, False, False, True, True]] * 2


def test_placements_say_what_they_are() -> None:
    asked = [(p.is_shard(), p.is_shard(1), p.is_replicate(), p.is_partial()) for p in (S(1), R(), P())]
    assert asked == [(True, True, False, False), (False, False, True, False), (False, False, False, True)]
    assert (S(0).is_shard(1), P("max").is_partial("max"), P().is_partial("max")) == (False, True, False)


def test_reductions_that_give_another_value_in_another_order_are_refused() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2, 2))
        x = dist.distribute_tensor(tb.ones(2, device="cpu") * 3, mesh)
        results = []
        for pair in itertools.product(("sum", "average", "product", "max"), repeat=2):
            placements = [P(name) for name in pair]
            if len({*pair}) == 1 or {*pair} == {"sum", "average"}:
                results.append(x.redistribute(placements).tolist())
                continue
            for call in (x.redistribute, lambda p: dist.DTensor.from_local(x.to_local(), mesh, p)):
                with pytest.raises(tb.ArgumentError, match="the value depends on which comes first"):
                    call(placements)
        for before, after in itertools.product([[R(), P()], [S(0), P()], [P("max"), R()]], repeat=2):
            after = [P("product") if p == P() else p for p in after]  # on the way there they never mix
            results.append(x.redistribute(before).redistribute(after[::-1]).tolist())
        return results

    assert dist.run_ranks(rank, 4) == [[[3, 3]] * 15] * 4


def test_small_sums_of_gradients_take_one_collective() -> None:
    """But for those of another dtype, large ones, those that a hook sees early, and those with a history."""
    shapes = {"a": (3,), "b": (1, 3), "doubled": (3,), "hooked": (3,), "large": (70_000,), "split": (4, 1)}

    def loss(x: Any, of: dict[str, Any]) -> Any:
        y = x * of["a"] + of["b"] * of["hooked"] + of["split"]
        doubled = (x.to(tb.float64) * of["doubled"]).sum().to(tb.float32)
        return (y**2).sum() + doubled + (x.sum(1, keepdims=True) * of["large"]).mean()

    def leaves(lay: Callable[[Any, str], Any]) -> dict[str, Any]:
        types = {"doubled": "float64"}
        tensors = {
            name: lay(tb.ones(shape, device="cpu", dtype=types.get(name, "float32")) * (k + 1), name)
            for k, (name, shape) in enumerate(shapes.items())
        }
        return {name: x.requires_grad_() for name, x in tensors.items()}

    def gradients(of: dict[str, Any]) -> dict[str, list[float]]:
        return {name: x.grad.numpy().ravel()[:9].tolist() for name, x in of.items()}

    numbers = tb.arange(12, dtype="float32", device="cpu").reshape((4, 3))
    alone = leaves(lambda x, name: x)
    loss(numbers, alone).backward()
    expected = gradients(alone)

    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2, 2))
        places = {name: [S(0), R()] if name == "split" else [R(), R()] for name in shapes}
        of = leaves(lambda x, name: dist.distribute_tensor(x, mesh, places[name]))
        seen: list[Any] = []
        of["hooked"].register_hook(lambda g: seen.append(g.placements))
        x = dist.distribute_tensor(numbers, mesh, [S(0), R()])
        counts = []
        for create in (False, True):
            total = loss(x, of)
            before = len(dist.records())
            total.backward(create_graph=create)
            calls = [r.shapes for r in dist.records()[before:] if r.operation == "all_reduce"]
            counts.append(len(calls))
            assert (((6,),) in calls) is not create
            gathered = gradients(of)
            for name, leaf in of.items():
                assert_alike(gathered[name], [g * (1 + create) for g in expected[name]], 64)
                assert leaf.grad.placements == tuple(places[name])
        of["a"].grad.detach().mul_(0)  # nobody else's memory
        assert of["b"].grad.full_tensor().tolist()[0] == gathered["b"]
        assert seen == [(R(), R())] * 2
        return counts

    assert dist.run_ranks(rank, 4) == [[4, 5]] * 4
