"""Values that a forward program saves for its backward program: the fewest bytes, found in few passes."""

from __future__ import annotations

import random
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
from tensorbus.compiler.aot_autograd import min_cut_partitioner as partition
from tensorbus.dtypes import definition as dt
from tensorbus.ops.definition import Spec

OPS = ("add", "exp", "multiply", "reshape", "matmul", "sum", "constant")
AGAIN = frozenset({"add", "exp", "multiply", "reshape"})


def trace_of(entries: list[Any]) -> Any:
    def needed(places: list[int], inputs: list[int]) -> list[int]:
        result, left = set[int](), list(places)
        while left:
            place = left.pop()
            if place not in result:
                result.add(place)
                left += () if place in inputs else entries[place].operands
        return sorted(result)

    return SimpleNamespace(nodes=entries, needed=needed)


def entry(op: str, operands: list[int], length: int) -> Any:
    return SimpleNamespace(op=op, operands=operands, spec=Spec((length,), dt.float32))


def gives(entries: list[Any], state: set[int], place: int) -> bool:
    """Return whether the backward program can have a value, from ``kept`` and by what may run twice."""
    e = entries[place]
    if place in state or e.op == "constant":
        return True
    return e.op in AGAIN and all(gives(entries, state, x) for x in e.operands)


@pytest.mark.parametrize("seed", range(60))
def test_the_fewest_bytes_are_kept(seed: int) -> None:
    rng = random.Random(seed)
    forward, count = 9, 13
    entries = [entry("matmul", [], 4)]
    for k in range(1, count):
        op = rng.choice(OPS)
        operand = [] if op == "constant" else [rng.randrange(k) for _ in range(rng.randint(1, 2))]
        entries.append(entry(op, operand, rng.choice([1, 2, 3, 5, 8])))
    grads = [rng.randrange(forward, count) for _ in range(2)]
    saved = partition.saved_values(trace_of(entries), forward, grads, [])
    needed = trace_of(entries).needed(grads, [])
    used = {x for p in needed if p >= forward for x in entries[p].operands if x < forward}

    def size(places: Any) -> int:
        return sum(entries[p].spec.shape[0] for p in places)

    enough = [
        size(some)
        for n in range(forward + 1)
        for some in combinations(range(forward), n)
        if all(gives(entries, {*some}, x) for x in used)
    ]
    assert all(gives(entries, {*saved}, x) for x in used)
    assert size(saved) == min(enough)


def test_many_values_take_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    steps = partition._levels

    def counted(edges: Any) -> Any:
        passes.append(len(edges))
        return steps(edges)

    monkeypatch.setattr(partition, "_levels", counted)
    forward = 200
    entries = [entry("sum", [k - 1] if k else [], 1 + k % 7) for k in range(forward)]
    entries += [entry("multiply", [k], 1) for k in range(forward)]
    saved = partition.saved_values(trace_of(entries), forward, list(range(forward, 2 * forward)), [])
    assert saved == list(range(forward))
    assert len(passes) <= 3
