"""Programs of distributed tensors launch what those of their parts do, and nothing besides."""

from __future__ import annotations

from typing import Any

import tensorbus as tb
from fused import program_of, steps_by_name
from tensorbus import distributed as dist

F = tb.nn.functional
S, R = dist.Shard, dist.Replicate


def _step(x: Any, w: Any, b: Any) -> Any:
    loss = (F.gelu(x @ w + b) ** 2).sum()
    loss.backward()
    return loss.detach()


FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "rows": (lambda x, w, b: F.softmax(x @ w + b, -1).sum(1), S(0), R(), R()),
    "columns": (lambda x, w, b: F.gelu(x @ w + b), R(), S(1), S(0)),
    "terms": (lambda x, w, b: (x @ w).sum(0), S(1), S(0), R()),
    "views": (lambda x, w, b: tb.cat([x[:, 1:], x.unflatten(1, (2, 3)).sum(1)], 1), S(0), R(), R()),
    "a change in place": (lambda x, w, b: (x * 2).add_(1).mul_(x), S(1), R(), R()),
    "derivatives": (_step, R(), S(1), S(0)),
}
"""Functions, and placements of their operands, for which no rank needs what another has."""


def test_a_compiled_function_launches_what_it_does_of_parts() -> None:
    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2,))
        for name, (function, *places) in FUNCTIONS.items():
            launched = []
            for whole in (True, False):
                operands: list[Any] = []
                for shape, place in zip(((4, 6), (6, 8), (8,)), places, strict=True):
                    x: Any = dist.rand(shape, device_mesh=mesh, placements=[place])
                    x = x if whole else x.to_local()
                    operands.append(x.requires_grad_() if function is _step and place != R() else x)
                compiled = tb.compile(function)
                for _ in range(3):
                    y = compiled(*operands)
                assert isinstance(y, dist.DTensor) == whole
                launched.append([steps_by_name(program_of(g)[1]) for g in compiled.this_rank.graphs])
            assert launched[0] == launched[1], name
            assert launched[0] != [], name

    dist.run_ranks(rank, 2)
