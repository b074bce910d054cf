"""Compiled functions of distributed tensors are right for other tensors and layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from tensorbus import distributed as dist

S, R = dist.Shard, dist.Replicate


def test_compiled_functions_follow_tensors_and_their_layouts() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        w = tb.nn.Parameter(dist.distribute_tensor(tb.arange(12.0).reshape((4, 3)), mesh, [S(1)]))

        def loss(x: Any) -> Any:
            return (x @ w).sum(0)

        compiled = tb.compile(loss)
        for length, placement in ((4, S(0)), (4, S(0)), (5, S(0)), (4, R()), (4, S(1))):
            x = dist.distribute_tensor(tb.ones((length, 4)) * length, mesh, [placement])
            gradients = []
            for function in (compiled, loss):
                w.grad = None
                y = function(x)
                (y * y).sum().backward()
                gradients.append((y.placements, y.full_tensor().tolist(), w.grad.full_tensor().tolist()))
            assert gradients[0] == gradients[1]

    dist.run_ranks(rank, 2)


def test_compiled_functions_change_distributed_tensors() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        w = dist.distribute_tensor(tb.ones((3, 2)), mesh, [S(0)])
        shown = w.detach()

        @tb.compile(fullgraph=True)
        def double() -> Any:
            w.mul_(2)
            return shown.sum()

        sums = [double().item() for _ in range(3)]
        w += 1  # between runs of the program
        return [*sums, double().item(), shown.full_tensor().sum().item(), w.placements]

    assert dist.run_ranks(rank, 2) == [[12, 24, 48, 108, 108, (S(0),)]] * 2


def test_a_compiled_step_has_the_collectives_of_an_eager_one() -> None:
    def rank() -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        model = tb.nn.Sequential(tb.nn.Linear(4, 5), tb.nn.GELU(), tb.nn.Linear(5, 4))
        dist.parallelize_module(model, mesh, {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()})
        optimizer = tb.optim.AdamW(model.parameters())

        @tb.compile(fullgraph=True)
        def step(x: Any) -> Any:
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        before = len(dist.records())
        losses = [step(tb.ones((2, 4))).item() for _ in range(6)]
        assert losses == sorted(losses, reverse=True)
        return [record.operation for record in dist.records()[before:]]

    assert dist.run_ranks(rank, 2) == [["all_reduce"] * 6] * 2


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "nobody": lambda p: None,
    "a copy": lambda p: p.detach().clone(),
    "a part": lambda p: p.to_local().detach(),
    "the value": lambda p: p._value,
    "the value's part": lambda p: p._value.local,
    "a view of the part": lambda p: p._value.local[:1],
    "a view of the tensor": lambda p: p.detach(),
    "what lends memory": lambda p: np.from_dlpack(p.to_local().detach()),
}


def _shown(held: Any) -> Any:
    """Return the elements of this rank that a holder shows."""
    held = getattr(held, "local", held)
    return None if held is None else (held.to_local() if isinstance(held, dist.DTensor) else held).tolist()


@pytest.mark.parametrize("holder", HOLDERS)
def test_parameters_are_written_over_and_what_shares_them_is_not(holder: str) -> None:
    """A step of a program treats what others hold of a parameter as Python does; of others, parts stay."""

    def rank(compiled: bool) -> Any:
        mesh = dist.init_device_mesh(None, (2,))
        whole = tb.arange(8.0, device="cpu").reshape((4, 2))
        p = tb.nn.Parameter(dist.distribute_tensor(whole, mesh, [S(0)]))
        optimizer = tb.optim.SGD([p], lr=1.0)

        def step() -> None:
            (p * 2).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        run = tb.compile(step, fullgraph=True) if compiled else step
        results = []
        for k in range(4):
            held = HOLDERS[holder](p)
            part = id(p._value.local)
            run()
            results.append((_shown(held), p.full_tensor().tolist()))
            if compiled and holder == "nobody" and k > 1:
                assert id(p._value.local) == part
            del held
        return results

    eager, compiled = (dist.run_ranks(lambda way=way: rank(way), 2) for way in (False, True))
    assert compiled == eager
    right = [[[x - 2.0 * k, x + 1 - 2.0 * k] for x in (0.0, 2.0, 4.0, 6.0)] for k in range(1, 5)]
    assert [p for _, p in compiled[0]] == right
