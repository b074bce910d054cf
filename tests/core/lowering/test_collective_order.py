"""Steps that communicate come as soon as what they read is there, and have other work behind them."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from tensorbus.distributed import functional
from tensorbus.dtypes.definition import float32
from tensorbus.lowering.ir.kernel_task import ERROR_SLOT, KernelLaunch, LibraryCall
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.program.collective_order import overlap_collectives
from tensorbus.lowering.program.program import Item, slots_of
from tensorbus.ops.definition import AFTER, Spec

SPEC = Spec((2,), float32)
REDUCE, GATHER, PRODUCT = "distributed::all_reduce", "distributed::all_gather", "matmul"


def call(op: str, reads: list[int], to: int, after: int | None = None) -> LibraryCall:
    """Return a call; ``after``: the result of the one that communicates before it, named for the order."""
    assert functional.all_reduce  # makes the ops
    operands = [*reads, *([] if after is None else [after])]
    return LibraryCall(
        op=op, attrs={} if after is None else {AFTER: True},
        inputs=tuple(packed(s, (2,)) for s in operands), specs=(SPEC,) * len(operands),
        outputs=(to,), out_specs=(SPEC,),
    )  # fmt: skip


def kernel(reads: list[int], *writes: int) -> KernelLaunch:
    buffers = [SimpleNamespace(writes=False)] * len(reads) + [SimpleNamespace(writes=True)] * len(writes)
    launch: Any = SimpleNamespace(kernel=SimpleNamespace(buffers=tuple(buffers)))
    return KernelLaunch(launch=launch, slots=(*reads, *writes))


INPUTS = 10
"""Slots below are inputs."""
CASES: dict[str, tuple[list[Item], list[int], dict[int, int]]] = {
    "gradients of weights run beside that of activations": (
        [
            call(PRODUCT, [0, 1], 10), call(REDUCE, [10], 11),
            call(PRODUCT, [11, 2], 12),  # a gradient of weights
            call(PRODUCT, [11, 3], 13), call(REDUCE, [13], 14, after=11), kernel([14], 15),
        ],
        [0, 1, 3, 4, 2, 5], {},
    ),
    "one at the end comes forward, and only what reads no result": (
        [
            call(PRODUCT, [0, 1], 10), call(REDUCE, [10], 11), kernel([11], 12), call(PRODUCT, [12, 1], 13),
            call(REDUCE, [13], 14, after=11), kernel([14], 15), call(PRODUCT, [14, 3], 16),
            call(PRODUCT, [10, 3], 17), call(PRODUCT, [12, 2], 18),
        ],
        [0, 1, 7, 2, 3, 4, 8, 5, 6], {},
    ),
    "parameters are gathered one ahead of their use": (
        [
            call(GATHER, [0], 10), call(GATHER, [1], 11, after=10), call(GATHER, [2], 12, after=11),
            kernel([10], 13), kernel([11], 14), kernel([12], 15),
            call(PRODUCT, [3, 13], 16), call(PRODUCT, [16, 14], 17), call(PRODUCT, [17, 15], 18),
        ],
        [0, 1, 3, 6, 2, 4, 7, 5, 8], {},
    ),
    "and the next one behind the reduction that comes first": (
        [
            call(GATHER, [0], 10), call(GATHER, [1], 11, after=10), kernel([10], 12), kernel([11], 13),
            call(PRODUCT, [2, 12], 14), call(REDUCE, [14], 15, after=11), call(GATHER, [3], 16, after=15),
            call(PRODUCT, [14, 13], 17), kernel([16], 18), call(PRODUCT, [17, 18], 19),
        ],
        [0, 1, 2, 4, 5, 6, 3, 7, 8, 9], {},
    ),
    "what reports errors and what is written over an input stay": (
        [
            call(PRODUCT, [0, 1], 10), call(REDUCE, [10], 11), kernel([2], 12, ERROR_SLOT), kernel([0], 13),
            call(PRODUCT, [11, 1], 14), call(REDUCE, [14], 15, after=11), kernel([12, 13, 15], 16),
        ],
        [0, 1, 2, 3, 4, 5, 6], {13: 0},
    ),
    "without communication nothing moves": (
        [call(PRODUCT, [0, 1], 10), kernel([2], 11), call(PRODUCT, [10, 11], 12)], [0, 1, 2], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_order(name: str) -> None:
    items, order, replacing = CASES[name]
    assert [items.index(item) for item in overlap_collectives(items, replacing)] == order


def _conflicts(a: Item, b: Item, replacing: dict[int, int]) -> bool:
    reads, writes = slots_of(a)
    later_reads, later_writes = slots_of(b)
    writes, later_writes = (
        {*w, *(replacing[s] for s in w if s in replacing)} for w in (writes, later_writes)
    )
    return bool(writes & (later_reads | later_writes) or reads & later_writes)


@pytest.mark.parametrize("seed", range(40))
def test_any_order_keeps_what_waits_for_what(seed: int) -> None:
    """Buffers are used again and written over inputs; every step is there once, behind all that it needs."""
    chance = random.Random(seed)
    items: list[Item] = []
    slots, last = [*range(INPUTS)], None
    for _ in range(chance.randrange(5, 60)):
        reads = chance.choices(slots, k=2)
        again = [s for s in slots if s >= INPUTS]
        to = chance.choice(again) if again and chance.random() < 0.2 else len(slots)
        kind = chance.random()
        if kind < 0.3:
            items.append(call(chance.choice([REDUCE, GATHER]), reads[:1], to, last))
            last = to
        elif kind < 0.6:
            items.append(call(PRODUCT, reads, to))
        else:
            items.append(kernel(reads, to, *([ERROR_SLOT] if chance.random() < 0.1 else [])))
        slots = [*dict.fromkeys([*slots, to])]
    replacing = {s: chance.randrange(INPUTS) for s in slots if s >= INPUTS and chance.random() < 0.1}
    ordered = overlap_collectives(items, replacing)
    place = {id(item): n for n, item in enumerate(ordered)}
    assert sorted(map(id, ordered)) == sorted(map(id, items))
    for k, item in enumerate(items):
        for later in items[k + 1 :]:
            together = all(isinstance(x, LibraryCall) and x.op != PRODUCT for x in (item, later))
            if together or _conflicts(item, later, replacing):
                assert place[id(item)] < place[id(later)]
