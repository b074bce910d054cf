"""Compiled functions of distributed tensors are right for other tensors and layouts, and change them."""

from __future__ import annotations

from typing import Any

import tensorbus as tb
from tensorbus import distributed as dist

S, R = dist.Shard, dist.Replicate


def test_compiled_functions_follow_tensors_and_their_layouts() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        w = tb.nn.Parameter(dist.distribute_tensor(tb.arange(12.0).reshape((4, 3)), mesh, [S(1)]))
        optimizer = tb.optim.SGD([w], lr=0.1)

        def loss(x: Any) -> Any:
            return (x @ w).sum(0)

        compiled = tb.compile(loss)
        for length, placement in ((4, S(0)), (4, S(0)), (5, S(0)), (4, R()), (4, S(1))):
            x = dist.distribute_tensor(tb.ones((length, 4)) * length, mesh, [placement])
            results = []
            for function in (compiled, loss):
                w.grad = None
                y = function(x)
                (y * y).mean().backward()
                results.append((y.placements, y.full_tensor().tolist(), w.grad.full_tensor().tolist()))
            assert results[0] == results[1]
            optimizer.step()  # which gives w another value

    dist.run_ranks(rank, 2)


def test_compiled_functions_change_distributed_tensors() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        w = dist.distribute_tensor(tb.ones((3, 2)), mesh, [S(0)])
        shown = w.detach()

        @tb.compile
        def double() -> Any:
            w.mul_(2)
            return shown.sum()

        sums = [double().item() for _ in range(3)]
        w.add_(1)  # between runs
        return [*sums, double().item(), shown.full_tensor().sum().item(), w.placements]

    assert dist.run_ranks(rank, 2) == [[12, 24, 48, 108, 108, (S(0),)]] * 2
