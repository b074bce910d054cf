"""Ranks that are threads, each in a stream of its own: none reads what another's stream has yet to make."""

from __future__ import annotations

from functools import partial

import pytest
import tensorbus as tb
from tensorbus import distributed as dist

N, RANKS = 700, 2


def _late(x: tb.Tensor) -> tb.Tensor:
    """Return ``x``, a matrix of ones and a number, by work that the device takes a while for."""
    for _ in range(4):
        x = (x @ x) / N
    return x


def _exchange(way: str, x: tb.Tensor) -> tb.Tensor:
    other = 1 - dist.get_rank()
    if way == "sent":
        out = tb.zeros_like(x)
        dist.isend(x, other)
        dist.recv(out, other)
        return out + x
    if way == "broadcast":
        out = x + 0
        dist.broadcast(out, 1)
        return out
    work = dist.all_reduce(x, async_op=way == "asynchronous")
    if work is not None:
        work.wait()
    return x


@pytest.mark.parametrize("way", ["synchronous", "asynchronous", "sent", "broadcast"])
def test_streams_of_ranks_follow_each_other(way: str) -> None:
    def rank() -> list[float]:
        seen = []
        side = tb.Stream("opencl")
        with tb.stream(side):
            ones = tb.ones((N, N), device="opencl")
            for k in range(3):
                x = _late(ones).sum(axis=0) * (k + 1 + dist.get_rank())
                seen.append(float(_exchange(way, x).max()))
        return seen

    right = [N * (k + 2) if way == "broadcast" else N * (2 * k + 3) for k in range(3)]
    for seen in dist.run_ranks(partial(rank), RANKS, prefer="threads"):
        assert seen == pytest.approx(right)
