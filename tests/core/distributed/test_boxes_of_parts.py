"""Boxes of distributed tensors: small ones are read, and all are written, without moving the tensor."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist

S, R, P = dist.Shard, dist.Replicate, dist.Partial
ALL = slice(None)
KEYS: list[Any] = [
    0, -1, slice(1, 2), slice(0, 3, 2), slice(-2, None), slice(2, 2), slice(0, 9), (ALL, 0), (ALL, -1),
    (0, -1), (slice(0, 2), slice(1, 3)), (ALL, slice(5, 20, 7)), (slice(None, None, 2), slice(0, 1)),
    (slice(None, None, -1), 0),
]  # fmt: skip


def _numbers(shape: tuple[int, int], dtype: str) -> tb.Tensor:
    x = tb.arange(math.prod(shape), device="cpu").reshape(shape) - 7
    return -x.to(dtype) * (x % 3) if dtype == "float32" else x.to(dtype)  # some are -0.0


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2)])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("shape", [(18, 4), (3, 35), (1, 33)])
def test_what_is_read_and_written_is_that_of_one_device(
    sizes: tuple[int, ...], dtype: str, shape: tuple[int, int]
) -> None:
    right = _numbers(shape, dtype)
    terms = [P()] if dtype == "float32" else []

    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", sizes)
        for places in itertools.product([R(), S(0), S(1), *terms], repeat=len(sizes)):
            x = dist.distribute_tensor(right, mesh, places)
            for key in KEYS:
                part = right[key]
                got = x[key].full_tensor()
                assert (got == part).all()
                if dtype == "float32" and P() not in places:
                    assert (tb.signbit(got) == tb.signbit(part)).all()
                value = tb.arange(part.size, device="cpu").reshape(part.shape).to(dtype)
                for new in (
                    1,
                    dist.distribute_tensor(value, mesh, [S(0) if part.ndim else R()] * len(sizes)),
                ):
                    y, whole = x.clone(), right.clone()
                    y[key], whole[key] = new, value if isinstance(new, tb.Tensor) else new
                    assert (y.full_tensor() == whole).all()
                    assert y.placements == x.placements
                if terms:
                    y, whole = x.clone().requires_grad_(), right.clone().requires_grad_()
                    (y[key] * 3).sum().backward()
                    (whole[key] * 3).sum().backward()
                    assert (y.grad.full_tensor() == whole.grad).all()

    dist.run_ranks(rank, math.prod(sizes), timeout=60)


def test_nothing_is_sent_for_a_small_box_and_for_what_is_written() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = dist.distribute_tensor(_numbers((32, 4), "float32"), mesh, [S(0)])
        row, rows = dist.zeros(4, device_mesh=mesh), dist.zeros(20, 4, device_mesh=mesh)
        before = len(dist.records())
        with dist.explicit():
            read = x[3]
            x[-1] = 5.0
            x[0] = row
            x[4:24] = rows
            x[:, 1] = 2.0
        assert len(dist.records()) == before
        with pytest.raises(dist.DistributedError, match="slice: in a block of explicit"), dist.explicit():
            x[1:]  # as large as what a rank would receive otherwise
        return read.placements, x.placements

    assert dist.run_ranks(rank, 2) == [((P(),), (S(0),))] * 2
