"""A result's memory serves temporaries until it is written, and launches that free memory run early."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import tensorbus as tb
from fused import program_of, record, spec
from tensorbus.lowering.program.memory_planner import plan_memory
from tensorbus.lowering.program.program import Program, slots_of

WIDE = 512


def gradients(x: Any, *weights: Any) -> Any:
    """Return the gradients of weights, the first layer's first, for which values of all layers wait."""
    retained = [x]
    for w in weights:
        retained.append(tb.tanh(retained[-1] @ w))
    grad, results = retained[-1], []
    for before, after, w in zip(retained[-2::-1], retained[:0:-1], weights[::-1], strict=True):
        grad = grad * (1 - after * after)
        results.append(before.T @ grad)
        grad = grad @ w.T
    return [grad, *results[::-1]]


def training(count: int = 6) -> Program:
    specs = [spec(WIDE // 2, WIDE), *[spec(WIDE, WIDE)] * count]
    return program_of(record(gradients, *specs))[1]


def filled(program: Program) -> dict[int, int]:
    """Return when each slot is written first."""
    results: dict[int, int] = {}
    for k, item in enumerate(program.steps):
        for slot in slots_of(item)[1]:
            results.setdefault(slot, k)
    return results


def lives(program: Program) -> dict[int, tuple[int, int]]:
    results: dict[int, tuple[int, int]] = {}
    for k, item in enumerate(program.steps):
        for slot in set.union(*slots_of(item)):
            results[slot] = results.get(slot, (k, k))[0], k
    return results


def nbytes(program: Program, slot: int) -> int:
    size, dtype = program.sizes[slot]
    return size * dtype.itemsize


def test_temporaries_lie_in_results_that_are_not_written_yet() -> None:
    program = training()
    results = {x.slot for x in program.outputs}
    alone, arena = plan_memory(program), plan_memory(program, hosts=results)
    assert not alone.hosts
    assert arena.hosts
    assert arena.total <= alone.total - 3 * WIDE * WIDE * 2
    first, alive = filled(program), lives(program)
    for slot, host in arena.hosts.items():
        assert host in results
        assert alive[slot][1] < first[host]
        assert arena.offsets[slot] + nbytes(program, slot) <= nbytes(program, host)
    places = [(s, arena.hosts.get(s, -1), at, at + nbytes(program, s)) for s, at in arena.offsets.items()]
    for a, region, start, stop in places:
        for b, other, begin, end in places:
            together = alive[a][0] <= alive[b][1] and alive[b][0] <= alive[a][1]
            assert a == b or region != other or not together or stop <= begin or end <= start


def test_slots_apart_take_no_room() -> None:
    program = training()
    arena = plan_memory(program)
    large = max(arena.offsets, key=lambda s: (nbytes(program, s), s))
    assert large not in plan_memory(program, apart={large}).offsets


def test_small_values_stay_in_the_arena() -> None:
    program = program_of(record(gradients, *[spec(16, 16)] * 5))[1]
    arena = plan_memory(program, hosts={x.slot for x in program.outputs})
    assert arena.offsets
    assert not arena.hosts


def test_gradients_of_weights_do_not_wait_for_those_of_earlier_layers() -> None:
    program = training()
    first = filled(program)
    written = [first[x.slot] for x in program.outputs[1:]]
    assert written == sorted(written, reverse=True)
    assert all(late - soon > 1 for soon, late in pairwise(written[::-1]))
