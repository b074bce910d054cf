"""Memory that a program keeps for its temporaries from run to run."""

from __future__ import annotations

from typing import Any

import pytest
from tensorbus.executors import slot_memory
from tensorbus.executors.slot_memory import FreshMemory, KeptMemory, rooms_of


class _Pool:
    """Makes buffers, each another object; ``foreign``: another stream works with what there is."""

    def __init__(self) -> None:
        self.allocated: list[int] = []
        self.foreign = False

    def allocate(self, nbytes: int) -> list[int]:
        self.allocated.append(nbytes)
        return [nbytes]

    def is_own(self, buffer: Any) -> bool:
        return not self.foreign


@pytest.mark.parametrize(
    ("steps", "sizes", "outputs", "rooms"),
    [
        pytest.param([({3}, ()), ({4}, {3}), ({5}, {4})], {3: "a", 4: "a", 5: "a"}, (), {3: 0, 4: 1, 5: 0},
                     id="a place that is read no more"),
        pytest.param([({3}, ()), ({4}, {3}), ({5}, {4})], {3: "a", 4: "a", 5: "b"}, (), {3: 0, 4: 1, 5: 2},
                     id="of one size alone"),
        pytest.param([({3}, ()), ({4}, {3}), ({5}, {4})], {3: "a", 4: "a", 5: "a"}, {4}, {3: 0, 5: 0},
                     id="not where a result lies"),
        pytest.param([({3, 4}, {4}), ({3, 5}, {0, 3})], {3: "a", 4: "a", 5: "a"}, (), {3: 0, 4: 1, 5: 1},
                     id="written twice, and an input that ends"),
        pytest.param([({-1, 7}, ())], {3: "a"}, (), {}, id="what is no slot of the program's"),
    ],
)  # fmt: skip
def test_temporaries_share_places(steps: Any, sizes: Any, outputs: Any, rooms: dict[int, int]) -> None:
    assert rooms_of(steps, sizes, outputs) == rooms


def test_buffers_are_kept_while_they_are_large_enough() -> None:
    pool = _Pool()
    memory = KeptMemory(pool.allocate, pool.is_own, {0: 0, 1: 1, 2: 0})
    memory.begin([100, 0, 100, 8])
    first = memory.of(0)
    assert memory.of(2) is first
    assert memory.of(1) is None
    assert memory.of(3) is not memory.of(3)  # a result
    memory.begin([125, 4, 90, 8])
    assert memory.of(0) is memory.of(2) is first
    assert memory.of(1) is memory.of(1)
    memory.begin([126, 4, 126, 8])
    assert memory.of(0) is not first
    assert pool.allocated == [125, 8, 8, 5, 157]


def test_nothing_is_kept_that_another_stream_works_with_or_a_value_lies_in() -> None:
    pool = _Pool()
    memory = KeptMemory(pool.allocate, pool.is_own, {0: 0, 1: 1})
    memory.begin([64, 64])
    first, second = memory.of(0), memory.of(1)
    memory.let_go([second, [80]])
    assert memory.of(0) is first
    assert memory.of(1) is not second
    pool.foreign = True
    memory.begin([64, 64])
    assert memory.of(0) is not first
    fresh = FreshMemory(pool.allocate, [64, 0])
    assert fresh.of(0) is not fresh.of(0)
    assert fresh.of(1) is None


def test_there_is_a_limit_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_memory, "MAX_KEPT_BYTES", 200)
    pool = _Pool()
    memory = KeptMemory(pool.allocate, pool.is_own, {0: 0, 1: 1})
    memory.begin([100, 100])
    assert memory.of(0) is memory.of(0)
    assert memory.of(1) is not memory.of(1)
    memory.let_go([memory.of(0)])
    assert memory.of(1) is memory.of(1)
    memory.begin([100, 170])  # what is kept is given up for what is too large for it
    assert memory.of(1) is not memory.of(1)
    assert memory.of(0) is memory.of(0)
    memory.clear()
    assert memory.of(0) is memory.of(0)
