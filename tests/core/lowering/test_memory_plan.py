"""Temporaries share an arena, and never while two of them are alive."""

from __future__ import annotations

from typing import Any

import tensorbus as tb
from fused import program_of, record, spec
from tensorbus.lowering.program.memory_planner import ALIGNMENT, plan_memory
from tensorbus.lowering.program.program import Program, slots_of


def layers(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = tb.softmax(tb.matmul(x, w), axis=-1)
    return x


def alive(program: Program) -> dict[int, tuple[int, int]]:
    results: dict[int, tuple[int, int]] = {}
    for k, item in enumerate(program.steps):
        for slot in set.union(*slots_of(item)):
            first, _ = results.get(slot, (k, k))
            results[slot] = first, k
    return results


def test_what_is_alive_together_lies_apart() -> None:
    _, program = program_of(record(layers, spec(50, 64), *[spec(64, 64)] * 8))
    arena = plan_memory(program)
    lives = alive(program)
    retained = {x.slot for x in program.outputs}
    assert set(arena.offsets) == set(program.sizes) - retained
    spans = {
        s: (at, at + program.sizes[s][0] * program.sizes[s][1].itemsize) for s, at in arena.offsets.items()
    }
    for a, (start, stop) in spans.items():
        assert start % ALIGNMENT == 0
        assert stop <= arena.total
        for b, (other, end) in spans.items():
            together = lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]
            assert a == b or not together or stop <= other or end <= start


def test_a_chain_takes_the_memory_of_two_steps() -> None:
    _, program = program_of(record(layers, spec(50, 64), *[spec(64, 64)] * 8))
    assert plan_memory(program).total == 2 * 50 * 64 * 4


def test_a_program_without_temporaries_needs_no_memory() -> None:
    _, program = program_of(record(lambda x: tb.exp(x) + 1, spec(7)))
    assert plan_memory(program).total == 0
