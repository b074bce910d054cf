"""``visualize_sharding``: every element of a distributed tensor is where the table says, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.distributed.tensor.sharding_table import parts_of_ranks
from tensorbus.errors import ArgumentError

ROWS, COLUMNS, BOTH, WHOLE = dist.Shard(0), dist.Shard(1), dist.StridedShard(0), dist.Replicate()
LAYOUTS: dict[str, tuple[tuple[int, ...], list[Any]]] = {
    "rows and columns": ((5, 4), [ROWS, COLUMNS]), "rows twice": ((5, 4), [ROWS, ROWS]),
    "parts of parts": ((7, 4), [BOTH, ROWS]), "copies": ((5, 4), [WHOLE, COLUMNS]),
    "whole": ((), [WHOLE, WHOLE]),
    "three axes": ((2, 3, 4), [dist.Shard(2), COLUMNS]), "none for some": ((3,), [ROWS, ROWS]),
    "no elements": ((0, 4), [ROWS, COLUMNS]), "many columns": ((2, 31), [COLUMNS, COLUMNS]),
}  # fmt: skip


def _rank(shape: tuple[int, ...], placements: list[Any]) -> Any:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    whole = tb.arange(tb.ones(shape).size, device="cpu").reshape(shape)
    x = dist.distribute_tensor(whole, mesh, placements)
    dist.visualize_sharding(x, header="mine")
    return parts_of_ranks(x._value.layout), x.to_local().tolist(), whole


@pytest.mark.parametrize("name", LAYOUTS)
def test_parts_are_those_of_the_ranks(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shape, placements = LAYOUTS[name]
    results = dist.run_ranks(_rank, 4, shape, placements)
    parts, _, whole = results[0]
    seen = []
    for part, ranks in parts.items():
        for rank in ranks:
            assert whole[tuple(slice(*ends) for ends in part)].tolist() == results[rank][1]
            seen.append(rank)
    assert sorted(seen) == [0, 1, 2, 3]
    printed = capsys.readouterr().out
    assert printed.startswith(f"mine\nint64{[*shape]}: dp (2) {placements[0]}, tp (2) {placements[1]}\n")
    assert printed.count("mine") == 1
    for part, ranks in parts.items():
        assert all(f"{a} : {b}" in printed if b > a else "none" in printed for a, b in part)
        assert f"rank {ranks[0]}" in printed


def test_terms_and_other_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = dist.distribute_tensor(tb.ones((4, 2), device="cpu"), mesh, [ROWS])
        dist.visualize_sharding(x.sum(0))
        with pytest.raises(ArgumentError, match="a distributed tensor is needed, got a Tensor"):
            dist.visualize_sharding(x.to_local())

    dist.run_ranks(rank, 2)
    assert "Ranks have terms: their sum is the value." in capsys.readouterr().out


def test_a_tensor_outlives_its_ranks() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        return dist.distribute_tensor(tb.ones((4, 2), device="cpu"), mesh, [ROWS])

    x = dist.run_ranks(rank, 2)[1]
    assert (x + 1).to_local().tolist() == [[2.0, 2.0]] * 2
    with pytest.raises(dist.DistributedError, match="the ranks of this distributed tensor have ended"):
        x.full_tensor()
