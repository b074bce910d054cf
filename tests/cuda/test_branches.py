"""Steps of a program wait for those whose memory they need, and for no others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import given
from hypothesis import strategies as st
from tensorbus.backend_api import Queued
from tensorbus_cuda.graphs.graph_dependencies import (
    branched,
    in_chains,
    in_turn,
    lanes,
    shared_places,
    waits,
    with_joins,
)


def step(read: Collection[int], written: Collection[int], ordered: bool = False) -> Queued:
    return Queued(slots=tuple({*read, *written}), written=frozenset(written), ordered=ordered)


def before(order: Sequence[Sequence[int]]) -> list[set[int]]:
    """Return for each step all that it follows."""
    results: list[set[int]] = []
    for after in order:
        results.append({*after}.union(*[results[k] for k in after]))
    return results


def test_two_readers_of_one_result_do_not_wait_for_each_other() -> None:
    steps = [step([0], [1]), step([1], [2]), step([1], [3]), step([2, 3], [4])]
    assert waits(steps, {}) == [[], [0], [0], [2, 1]]


def test_what_is_written_over_waits_for_its_readers() -> None:
    steps = [step([0], [1]), step([0], [2]), step([1], [0])]
    assert waits(steps, {}) == [[], [], [1, 0]]


def test_slots_that_share_memory_are_one() -> None:
    shared = shared_places([(1, 0, 64), (2, 64, 64), (3, 32, 64)], [(4, 0)])
    steps = [step([0], [1]), step([9], [2]), step([9], [3]), step([9], [4])]
    assert waits(steps, shared) == [[], [], [1, 0], [0]]


ACCESS = st.frozensets(st.integers(0, 7), max_size=3)


@given(
    st.lists(st.tuples(ACCESS, ACCESS), max_size=12),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 12)), min_size=8, max_size=8),
)
def test_whatever_conflicts_is_in_order(
    accesses: list[tuple[set[int], set[int]]], places: list[tuple[int, int]]
) -> None:
    steps = [step(*access) for access in accesses]
    order = waits(steps, shared_places([(k, at, size) for k, (at, size) in enumerate(places)], []))
    follows = before(order)

    def bytes_of(slots: Collection[int]) -> set[int]:
        return {b for s in slots for b in range(places[s][0], sum(places[s]))}

    for k, (read, written) in enumerate(accesses):
        for n, (first_read, first_written) in enumerate(accesses[:k]):
            meets = bytes_of(written) & (bytes_of(first_read) | bytes_of(first_written))
            if meets or bytes_of(read) & bytes_of(first_written):
                assert n in follows[k]
        for n in order[k]:
            assert not any(n in follows[m] for m in order[k])


@given(st.lists(st.tuples(st.sets(st.integers(0, 11)), st.booleans()), max_size=12), st.integers(1, 3))
def test_calls_in_one_lane_follow_each_other(x: list[tuple[set[int], bool]], most: int) -> None:
    order = [[n for n in after if n < k] for k, (after, _) in enumerate(x)]
    calls = [called for _, called in x]
    result, chosen = lanes(order, calls, most)
    follows = before(result)
    for k, after in enumerate(order):
        assert {*after} <= {*result[k]}
        assert chosen[k] < most
        if calls[k]:
            same = [n for n in range(k) if calls[n] and chosen[n] == chosen[k]]
            assert {*same} <= follows[k]


@given(st.lists(st.tuples(ACCESS, ACCESS, st.booleans(), st.integers(1, 3)), max_size=10))
def test_what_communicates_runs_beside_the_batches(
    x: list[tuple[set[int], set[int], bool, int]],
) -> None:
    """Batches stay one after the other, collectives too, and whatever waits for each other is in order."""
    counts = [1 if ordered else count for *_, ordered, count in x]
    steps = [
        step(read, written if count == 1 else set(), ordered)
        for (read, written, ordered, _), count in zip(x, counts, strict=True)
        for _ in range(count)
    ]
    beside = [one.ordered for one in steps]
    order = branched(counts, waits(steps, {}), beside)
    follows, needed = before(order), before(waits(steps, {}))
    turn = before(in_turn([n for n, (*_, ordered, _) in zip(counts, x, strict=True) if not ordered]))
    others = [k for k, is_beside in enumerate(beside) if not is_beside]
    for k in range(len(steps)):
        if beside[k]:
            assert needed[k] <= follows[k]
        else:
            assert {n for n in needed[k] if beside[n]} <= follows[k]
            assert {others[n] for n in turn[others.index(k)]} <= follows[k]
        own = [m for m in range(k + 1) if not beside[m]]
        last = max([n for m in own for n in needed[m] if beside[n]], default=-1)
        if not beside[k]:
            assert all(n <= last for n in follows[k] if beside[n])  # no other batch waits for it


def test_batches_come_one_after_the_other() -> None:
    assert in_turn([]) == []
    assert in_turn([1, 3, 1, 2]) == [[], [0], [0], [0], [1, 2, 3], [4], [4]]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.data())
def test_joined_batches_wait_for_what_they_waited_for(counts: list[int], data: st.DataObject) -> None:
    order = in_turn(counts)
    for k, follows in enumerate(order):
        more = data.draw(st.sets(st.integers(0, k - 1), max_size=3)) if k else set()
        order[k] = [*follows, *sorted(more - {*follows})]
    result, joins = with_joins(counts, order)
    seen: dict[int, list[int]] = {}
    for k, follows in enumerate(result):
        seen |= joins.get(k, {})
        expanded = [n for m in follows for n in (seen[m] if m < 0 else [m])]
        assert sorted(expanded) == sorted(order[k])
    edges = sum(map(len, result)) + sum(len(x) for each in joins.values() for x in each.values())
    assert edges <= sum(map(len, order))


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(1, 4))
def test_so_many_steps_of_a_batch_are_side_by_side(counts: list[int], most: int) -> None:
    order = in_turn(counts)
    result = in_chains(counts, order, most)
    wanted, follows = before(order), before(result)
    first = 0
    for count in counts:
        batch = range(first, first + count)
        for place, k in enumerate(batch):
            assert wanted[k] <= follows[k]
            assert follows[k] - wanted[k] == {*batch[place % most : place : most]}
            assert len(result[k]) <= most
            assert not any(n in follows[m] for m in result[k] for n in result[k])
        first += count
