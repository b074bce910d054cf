"""Where elements of distributed tensors come from: which rank, which mesh, parts that agree, other dtypes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist

S, R, P = dist.Shard, dist.Replicate, dist.Partial
AGREE: dict[str, Any] = {
    "dtype float64 and not float32": lambda r: (tb.ones(2, dtype=("float32", "float64")[r]), [S(0)], None),
    "shape (3, 1) and not (1, 3)": lambda r: (tb.ones(((1, 3), (3, 1))[r]), [R()], None),
    "shape (1,) and not (2,).* shape= says": lambda r: (tb.ones(2 - r), [S(0)], None),
    "shape (4,) and not (3,)": lambda r: (tb.ones(2 - r), [S(0)], (3 + r,)),
    "requires_grad True and not False": lambda r: (tb.ones(2).requires_grad_(r == 1), [R()], None),
    "placements \\[Shard": lambda r: (tb.ones(2), [(R(), S(0))[r]], None),
    "a rank of \\[0, 1\\] has other elements": lambda r: (tb.ones(2) * r, [R()], None),
}


@pytest.mark.parametrize("message", AGREE)
def test_all_ranks_hear_of_parts_that_are_not_those_of_one_tensor(message: str) -> None:
    pattern = message.replace("(", "\\(").replace(")", "\\)")

    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        part, placements, shape = AGREE[message](dist.get_rank())
        with pytest.raises(tb.ArgumentError, match=pattern):
            dist.DTensor.from_local(part.to("cpu"), mesh, placements, run_check=True, shape=shape)

    dist.run_ranks(rank, 2)


def test_elements_come_from_one_rank_or_from_each() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2, 2))
        here = tb.ones(4, device="cpu") * dist.get_rank()
        calls = len(dist.records())
        own = dist.distribute_tensor(here, mesh, [S(0), S(0)], src_data_rank=None)
        assert len(dist.records()) == calls
        layer = tb.nn.Linear(1, 4, bias=False, device="cpu")
        tb.nn.init.constant_(layer.weight, dist.get_rank())
        row = dist.DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b"))["b"]
        dist.parallelize_module(layer, row, dist.ColwiseParallel(), src_data_rank=1)
        for source in (2, -1, True, "0"):
            with pytest.raises(tb.ArgumentError, match=r"src_data_rank is a place .* 0 to 1, or None, got"):
                dist.distribute_tensor(here, mesh, src_data_rank=source)
        terms = [
            dist.distribute_tensor(here, mesh, [P(name), R()], src_data_rank=1).full_tensor().tolist()
            for name in ("sum", "average", "product", "min", "max")
        ]
        return own.full_tensor().tolist(), layer.weight.full_tensor().flatten().tolist(), terms

    own = [0.0, 1.0, 2.0, 3.0]
    assert dist.run_ranks(rank, 4) == [
        (own, [1.0 + dist_row] * 4, [[3.0] * 4] * 5) for dist_row in (0, 0, 2, 2)
    ]


def test_calls_that_name_no_mesh_take_that_of_the_block() -> None:
    def rank() -> Any:
        x = tb.arange(4.0, device="cpu")
        row, table = dist.init_device_mesh("cpu", 4), dist.init_device_mesh("cpu", (2, 2))
        make: dict[str, Any] = {
            "zeros": lambda: dist.zeros(3), "randn": lambda: dist.randn(3),
            "distribute_tensor": lambda: dist.distribute_tensor(x),
            "from_local": lambda: dist.DTensor.from_local(x),
            "local_map": lambda: dist.local_map(lambda: x, [[R()] * dist.zeros(1).device_mesh.ndim])(),
            "distribute_module": lambda: dist.distribute_module(tb.nn.Linear(1, 1, device="cpu")).weight,
        }  # fmt: skip

        @tb.compile
        def compiled(x: tb.Tensor) -> tb.Tensor:
            return dist.distribute_tensor(x) * 2

        make["compiled"] = lambda: compiled(x)
        for name, call in make.items():
            with row:
                assert call().device_mesh == row, name
                with table:
                    assert call().device_mesh == table, name
                assert call().device_mesh == row, name
            with pytest.raises(tb.ArgumentError, match=r"a DeviceMesh is needed.* got None; in `with mesh:`"):
                call()
        with row:
            layer = dist.parallelize_module(
                tb.nn.Linear(1, 4, device="cpu"), parallelize_plan=dist.ColwiseParallel()
            )
            return layer.weight.placements

    assert dist.run_ranks(rank, 4, timeout=60) == [(S(0),)] * 4


@pytest.mark.parametrize("compiled", [False, True])
def test_tensors_and_gradients_are_sent_in_other_dtypes(compiled: bool) -> None:
    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        whole = tb.arange(6.0, device="cpu").reshape((3, 2))
        kinds = (None, "bfloat16", "float64")
        for source, target, there, back in itertools.product(
            (S(0), R(), P()), (S(1), R(), S(0)), kinds, kinds
        ):
            x = dist.distribute_tensor(whole, mesh, [source]).requires_grad_()

            def moved(x: Any, to: Any = target, there: Any = there, back: Any = back) -> Any:
                return x.redistribute([to], forward_dtype=there, backward_dtype=back)

            y = (tb.compile(moved) if compiled else moved)(x)
            assert (y.placements, y.dtype) == ((target,), getattr(tb, there or "float32"))
            assert y.full_tensor().to("float32").tolist() == whole.tolist()
            (y * 3).sum().backward()
            assert (x.grad.dtype, x.grad.full_tensor().tolist()) == (tb.float32, [[3.0, 3.0]] * 3)

    dist.run_ranks(rank, 2, timeout=60)


def test_what_is_made_like_a_distributed_tensor_lies_as_it_on_another_device_too() -> None:
    makers: list[Any] = [
        tb.zeros_like, tb.empty_like, tb.rand_like, tb.randn_like,
        lambda x, **to: tb.randint_like(x, 9, **to), lambda x, **to: x.new_ones(x.shape, **to),
    ]  # fmt: skip

    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        shape = dist.distribute_tensor(tb.empty((5, 2), device="meta"), mesh, [S(0)])
        laid = dist.zeros(5, 2, device_mesh=mesh, placements=[S(0)])
        for make in makers:
            for x, device in ((laid, None), (laid, laid.device), (laid, "cpu"), (shape, "cpu")):
                tb.manual_seed(1)
                y = make(x, device=device)
                tb.manual_seed(1)
                right = make(tb.zeros((5, 2), device="cpu"))
                assert (y.placements, y.to_local().device.type) == ((S(0),), "cpu")
                assert y.full_tensor().tolist() == right.tolist()
        assert laid.new_ones((2, 5)).placements == (R(),)

    dist.run_ranks(rank, 2)


def test_parts_in_nested_arguments_and_results() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = dist.distribute_tensor(tb.arange(4.0, device="cpu"), mesh, [S(0)])
        call = dist.local_map(
            lambda xs, by: {"twice": xs["a"] + xs["b"][0], "rest": [xs["a"].sum(), by]},
            ([S(0)], [P()], None), ([S(0)], [S(0)], None),
        )  # fmt: skip
        out = call({"a": x, "b": [x]}, 7)
        alike = dist.local_map(lambda xs: [part * 2 for part in xs], [S(0)])([x, x])
        with pytest.raises(tb.ArgumentError, match=r"argument 0 lies as .*redistribute_inputs=True"):
            dist.local_map(abs, [R()], [[R()]], redistribute_inputs=False)(x)
        return [y.tolist() for y in (out["twice"], out["rest"][0], *alike)], out["rest"][1]

    assert dist.run_ranks(rank, 2) == [([[0, 2, 4, 6], 6, [0, 2, 4, 6], [0, 2, 4, 6]], 7)] * 2
