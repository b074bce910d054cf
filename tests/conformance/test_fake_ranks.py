"""One process as a rank of several: the shapes and the schedule of ranks that communicate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus import nn, optim
from tensorbus.distributed import functional

RANKS = 3


@contextmanager
def fake(rank: int, size: int) -> Iterator[Any]:
    """Be a rank of ``size`` without the others; gives the store."""
    store: Any = dist.open_store("fake://")
    dist.init(rank=rank, world_size=size, store=store)
    try:
        yield store
    finally:
        dist.shutdown()


def collectives(device: str) -> list[tb.Tensor]:
    """Every collective, of lengths that differ between ranks where they may."""
    rank = dist.get_rank()
    lengths = [1, 4, 2]
    x = tb.ones((lengths[rank], 3), device=device)
    whole, pair = tb.ones((7, 2), device=device), dist.new_group([0, 2])
    results = [functional.all_reduce(x[:1], reduction) for reduction in ("sum", "average", "product", "min")]
    results.append(functional.all_gather(x, 0, lengths))
    results.append(functional.reduce_scatter(whole, "sum", 0, lengths))
    results.append(functional.all_to_all(whole, 0, 1, lengths, [2, 2, 2]) if rank == 0 else
                   functional.all_to_all(whole, 0, 1, lengths))  # fmt: skip
    results.append(functional.broadcast(whole, 1))
    if pair:
        results.append(functional.all_gather(x[:1], group=pair))
    parts = [tb.zeros((n, 3), device=device) for n in lengths]
    work = dist.all_gather(parts, x, async_op=True)
    assert work is not None
    work.wait()
    if rank != 1:
        other = tb.zeros(5, device=device)
        dist.send(other, 2 - rank) if rank else dist.recv(other, 2)
        results.append(other)
    dist.barrier()
    return [*results, *parts]


def elements(shapes: Sequence[tuple[int, ...]]) -> int:
    """Return how many elements a call brings, in one tensor or in parts."""
    return sum(map(math.prod, shapes))


class Net(nn.Module):
    """Layers of lengths that three ranks do not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 7), nn.Linear(7, 4)

    def forward(self, x: tb.Tensor) -> tb.Tensor:
        """Keep the shape."""
        return self.down(nn.functional.gelu(self.up(x)))


def training(device: str, split: Callable[[Net], Any]) -> list[tb.Tensor]:
    """Two steps of a module that ``split`` divides; the parameters, and what is kept of each."""
    with tb.device(device):
        model, x = Net(), tb.ones((2, 4))
    split(model)
    optimizer = optim.AdamW(model.parameters())
    for _ in range(2):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    state = [v for p in model.parameters() for v in optimizer.state[p].values() if isinstance(v, tb.Tensor)]
    return [x.to_local() if isinstance(x, dist.DTensor) else x for x in (*model.parameters(), *state)]


TENSOR_PARALLEL = {"up": dist.ColwiseParallel(), "down": dist.RowwiseParallel()}
PROGRAMS: dict[str, Callable[[str], list[tb.Tensor]]] = {
    "collectives": collectives,
    "fully_shard": lambda device: training(device, dist.fully_shard),
    "replicate": lambda device: training(device, dist.replicate),
    "parallelize_module": lambda device: training(
        device,
        lambda model: dist.parallelize_module(model, dist.init_device_mesh(None, (RANKS,)), TENSOR_PARALLEL),
    ),
}


@pytest.mark.parametrize("where", ["cpu", "meta"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_shapes_and_schedule_are_those_of_ranks_that_communicate(name: str, where: str) -> None:
    def run() -> tuple[Any, ...]:
        results = PROGRAMS[name](where)
        calls = [(r.group, r.sequence, r.operation, r.shapes, r.dtype) for r in dist.records()]
        return [(x.shape, x.dtype, x.device) for x in results], calls

    expected = dist.run_ranks(run, RANKS, timeout=60)
    assert expected[0][1]
    for rank in range(RANKS):
        with fake(rank, RANKS) as store:
            assert run() == expected[rank]
            noted = [(c.sequence, c.operation, elements(c.shapes), c.dtype) for c in store.calls]
        assert noted == [
            (n, name, elements(shapes), dtype) for _, n, name, shapes, dtype in expected[rank][1]
        ]


def test_bytes_are_those_of_tensors_and_of_the_shortest_way() -> None:
    with fake(1, 4) as store:
        x = tb.ones((8, 3), device="meta", dtype="float16")
        functional.all_reduce(x)
        functional.all_gather(x)
        functional.reduce_scatter(x)
        functional.all_to_all(x)
        functional.broadcast(x, 0)
        functional.broadcast(x, 2)
    assert [c.bytes for c in store.calls] == [48] * 6
    assert [c.sent for c in store.calls] == [72, 144, 36, 36, 48, 0]
    assert {c.group for c in store.calls} == {(0, 1, 2, 3)}


def test_ranks_that_are_not_there_do_what_this_one_does() -> None:
    with fake(5, 512) as store:
        x = tb.ones(2, device="cpu")
        dist.all_reduce(x)
        assert x.tolist() == [512.0, 512.0]
        objects: list[Any] = [None] * 512
        dist.all_gather_object(objects, {"rank": 5})
        assert objects == [{"rank": 5}] * 512
        with pytest.raises(dist.DistributedTimeoutError, match="nobody set 'answer', and no other rank"):
            store.get("answer", 600)
