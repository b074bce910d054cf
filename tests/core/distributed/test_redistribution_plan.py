"""The steps of a redistribution: the cheapest of all there are, and what is sent is what is said."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import random
from typing import Any

import pytest
import tensorbus as tb
from tensorbus import distributed as dist
from tensorbus.distributed.tensor.placements import chunk_lengths, local_shape, mixes_reductions
from tensorbus.distributed.tensor.redistribute import COLLECTIVE_COST, collectives_between, plan
from tensorbus.distributed.tensor.sharding_plan import _placements, plan_op
from tensorbus.ops.definition import Spec, table
from tensorbus.ops.sharding_rules import Strategy

S, R, P = dist.Shard, dist.Replicate, dist.Partial
CASES = [
    ((2,), (8, 8)), ((3,), (5, 7)), ((2, 2), (8, 8)), ((2, 3), (700, 500)), ((3, 2), (4, 6, 5)),
    ((2, 2), (2048, 1024)), ((2, 2, 2), (8, 8)), ((2, 2, 2), (900, 800)), ((4, 2), (1, 3)), ((2, 2), (0, 3)),
    ((2, 2), ()),
]  # fmt: skip


def _layouts(sizes: tuple[int, ...], shape: tuple[int, ...], *terms: Any) -> list[Any]:
    single = [R(), *terms, *map(S, range(len(shape)))]
    every = itertools.product(single, repeat=len(sizes))
    return [each for each in every if len({p for p in each if isinstance(p, P)}) < 2]


def _pairs(sizes: tuple[int, ...], shape: tuple[int, ...], count: int, *terms: Any) -> list[Any]:
    layouts = _layouts(sizes, shape, *terms)
    pairs = [*itertools.product(layouts, layouts)]
    return pairs if len(pairs) <= count else random.Random(0).sample(pairs, count)


def _costs_from(source: Any, shape: tuple[int, ...], sizes: tuple[int, ...]) -> dict[Any, tuple[int, int]]:
    """Return the cost of the cheapest way to every layout, and its steps, by the definition of each step."""

    @functools.cache
    def size_of(layout: Any) -> int:
        lengths = list(shape)
        for size, p in zip(sizes, layout, strict=True):
            if isinstance(p, S):
                lengths[p.dim] = chunk_lengths(lengths[p.dim], size)[0]
        return math.prod(lengths)

    def is_last(layout: Any, dim: int, p: Any) -> bool:
        return not isinstance(p, S) or p not in layout[dim + 1 :]

    known: dict[Any, tuple[int, int]] = {}
    heap = [(0, 0, 0, source)]
    count = itertools.count(1)
    every = [R(), P(), *map(S, range(len(shape)))]
    while heap:
        cost, steps, _, layout = heapq.heappop(heap)
        if layout in known:
            continue
        known[layout] = cost, steps
        for dim, (size, before) in enumerate(zip(sizes, layout, strict=True)):
            for after in every:
                if before == after or not (is_last(layout, dim, before) and is_last(layout, dim, after)):
                    continue
                if before != R() and after == P():
                    continue
                others = size_of(layout) * (size - 1)  # a rank has this much less than all together
                kinds = type(before), type(after)
                sent = {(S, R): others, (S, S): others // size, (P, R): 2 * others // size}
                more = 0 if before == R() else sent.get(kinds, others // size) + COLLECTIVE_COST
                there = (*layout[:dim], after, *layout[dim + 1 :])
                heapq.heappush(heap, (cost + more, steps + 1, next(count), there))
    return known


@pytest.mark.parametrize(("sizes", "shape"), CASES)
def test_no_sequence_of_steps_is_cheaper(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    known: dict[Any, Any] = {}
    for source, target in _pairs(sizes, shape, 400, P()):
        if source not in known:
            known[source] = _costs_from(source, shape, sizes)
        steps = plan(shape, sizes, source, target)
        cost = sum(step.elements + COLLECTIVE_COST * bool(step.collective) for step in steps)
        assert (cost, len(steps)) == known[source][target], (source, target, steps)


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [((2,), (6, 4)), ((3,), (5, 3)), ((2, 2), (5, 4)), ((2, 2, 2), (4, 6)), ((2,), (0, 3))],
)
def test_what_is_explained_is_what_is_communicated(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    pairs = _pairs(sizes, shape, 150, P(), P("average"), P("max"))
    pairs = [(a, b) for a, b in pairs if len({p for p in (*a, *b) if isinstance(p, P)}) < 2]

    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", sizes)
        x = dist.distribute_tensor(tb.ones(shape, device="cpu"), mesh)
        for source, target in pairs:
            laid = x.redistribute(source)
            before = len(dist.records())
            explained = tb.explain(lambda laid=laid, to=target: laid.redistribute(to))
            called = [record.operation for record in dist.records()[before:]]
            names, elements = collectives_between(shape, sizes, source, target)
            assert called == names, (source, target)
            if source != target:
                remark = f"{', '.join(names) or 'no collective'}, each rank sends {elements * 4} bytes"
                assert explained.remarks[0].endswith(remark)

    dist.run_ranks(rank, math.prod(sizes))


CALLS: dict[str, Any] = {
    "add": (((8, 6), (8, 6)), {}), "multiply": (((8, 6), (6,)), {}), "matmul": (((8, 6), (6, 10)), {}),
    "concat": (((8, 6), (3, 6)), {"axis": 0}), "reshape": (((8, 6),), {"shape": (48,)}),
    "sort": (((8, 6),), {"axis": 0, "descending": False, "stable": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("scale", [1, 1000])
def test_no_strategies_along_all_dimensions_together_cost_less(name: str, scale: int) -> None:
    """Of small tensors, for which collectives count, and of large ones, for which bytes do."""
    small, attrs = CALLS[name]
    shapes = [tuple(n * scale for n in shape) for shape in small]
    attrs = {key: tuple(n * scale**2 for n in v) if key == "shape" else v for key, v in attrs.items()}
    op = table[name]

    def rank() -> None:
        mesh = dist.init_device_mesh("cpu", (2, 2))
        if dist.get_rank():
            return
        ways = [
            [[*pair] for pair in itertools.product([R(), P(), *map(S, range(len(shape)))], repeat=2)]
            for shape in shapes
        ]
        for laid in itertools.product(*ways):
            values = [
                dist.DTensor.from_local(
                    tb.empty(local_shape(shape, tuple(places), (2, 2), (0, 0)), device="meta"),
                    mesh,
                    places,
                    shape=shape,
                )._value
                for shape, places in zip(shapes, laid, strict=True)
            ]
            plan = plan_op(op, values, [tb.float32] * len(values), attrs)
            cost = sum(_cost(v, move.placements) for v, move in zip(values, plan.moves, strict=True) if move)
            specs = [Spec(v.shape, tb.float32) for v in values]
            outs = op.specs(tuple(specs), attrs)
            whole = Strategy((None,) * len(specs), (None,) * len(outs))
            strategies = [whole, *op.shard(specs, outs, **attrs)]
            for both in itertools.product(strategies, repeat=2):
                if all(s.divides == 0 for s in both):
                    marks = zip(*[s.operands for s in both], strict=True)
                    targets = [_placements(each, (False,) * 2) for each in marks]
                    if not any(map(mixes_reductions, targets)):
                        assert cost <= sum(map(_cost, values, targets)), (laid, both)

    dist.run_ranks(rank, 4, timeout=60)


def _cost(value: Any, target: Any) -> int:
    steps = plan(value.shape, (2, 2), value.layout.placements, target)
    return sum(step.elements + (COLLECTIVE_COST if step.collective else 0) for step in steps)
