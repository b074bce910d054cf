"""New distributed tensors are those of one device, in parts of any placements, made without communication."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist

MAKE: dict[str, Any] = {
    "zeros": (dist.zeros, tb.zeros, ()),
    "ones": (dist.ones, tb.ones, ()),
    "full": (dist.full, tb.full, (2.5,)),
    "full of integers": (dist.full, tb.full, (7,)),
    "full of truths": (dist.full, tb.full, (True,)),
    "empty": (dist.empty, tb.empty, ()),
}
PLACEMENTS = [*itertools.product((dist.Replicate(), dist.Shard(0), dist.Shard(-1)), repeat=2)]


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("shape", [(5, 3), (1, 4), (0, 2)])
@pytest.mark.parametrize("dtype", [None, "float64", "int32"])
def test_parts_of_any_placements(name: str, shape: tuple[int, ...], dtype: str | None) -> None:
    make, one, values = MAKE[name]
    if (name, dtype) == ("full", "int32"):
        with pytest.raises(tb.DtypeError, match=r"2\.5 is not a whole number"):
            dist.run_ranks(
                lambda: dist.full(shape, 2.5, device_mesh=dist.init_device_mesh("cpu", 2), dtype=dtype), 2
            )
        return
    right = one(shape, *values, dtype=dtype, device="cpu")

    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2, 2))
        for placements in (None, *PLACEMENTS):
            calls = len(dist.records())
            x = make(shape, *values, device_mesh=mesh, placements=placements, dtype=dtype)
            assert len(dist.records()) == calls
            laid = dist.distribute_tensor(right, mesh, placements)
            assert (x.shape, x.dtype, x.placements) == (shape, right.dtype, laid.placements)
            assert x.to_local().shape == laid.to_local().shape
            if name != "empty":
                assert x.full_tensor().tolist() == right.tolist()

    dist.run_ranks(rank, 4, timeout=60)


def test_lengths_one_by_one_gradients_and_what_makes_no_sense() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = dist.ones(4, 2, device_mesh=mesh, placements=[dist.Shard(0)], requires_grad=True)
        (x * 3).sum().backward()
        for placements, message in (
            ([dist.Partial()], "by Shard and Replicate"), ([dist.Shard(2)], "asked of a tensor of 2"),
            ([], "a placement .* is needed for each"),
        ):  # fmt: skip
            with pytest.raises(tb.errors.TensorbusError, match=message):
                dist.zeros(4, 2, device_mesh=mesh, placements=placements)
        for name in ("zeros", "rand"):  # as it was asked for, and not the shape of this rank's part
            with pytest.raises(tb.ShapeError, match=rf"{name}: lengths must be >= 0, got shape \(-4, 2\)"):
                getattr(dist, name)(-4, 2, device_mesh=mesh, placements=[dist.Shard(0)])
        return x.grad.placements, x.grad.full_tensor().tolist()

    assert dist.run_ranks(rank, 2) == [((dist.Shard(0),), [[3.0, 3.0]] * 4)] * 2
