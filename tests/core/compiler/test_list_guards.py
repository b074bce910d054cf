"""Lists of scalars that a captured function reads have one guard: each change fails it."""

from __future__ import annotations

from typing import Any

import pytest
import tensorbus as tb

CASES: list[tuple[list[Any], int, Any]] = [
    ([1, 2, 3, 4], 2, 5),
    ([1, 2, 3, 4], 2, True),
    ([1, 2, 3, 4], 0, 1.0),
    ([0.0, 1.0, 2.0, 3.0], 0, -0.0),
    ([0.0, 1.0, 2.0, 3.0], 3, float("nan")),
    (["a", "b", "c", "d"], 1, b"b"),
    ([None, 1, "x", 2.0], 0, False),
]


@pytest.mark.parametrize(("x", "place", "value"), CASES)
def test_each_change_is_seen(x: list[Any], place: int, value: Any) -> None:
    seen = []
    values = [*x]

    @tb.compile
    def f(x: tb.Tensor) -> tuple[tb.Tensor, list[Any]]:
        return x + 1, [repr(v) for v in values]

    for _ in range(2):
        seen.append(f(tb.ones((2,)))[1])
    values[place] = value
    seen.append(f(tb.ones((2,)))[1])
    values[place] = x[place]
    seen.append(f(tb.ones((2,)))[1])
    values.append(x[0])
    seen.append(f(tb.ones((2,)))[1])
    before = [repr(v) for v in x]
    after = [*before]
    after[place] = repr(value)
    assert seen == [before, before, after, before, [*before, repr(x[0])]]


def test_a_list_that_stays_is_captured_once() -> None:
    values = [0.5, float("nan"), 2.0, 3.0, 4.0]

    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        return x * values[0]

    for _ in range(3):
        assert f(tb.ones((2,))).tolist() == [0.5, 0.5]
    assert len(f.replays) == 1


def test_many_lists_make_few_guards() -> None:
    tables = {k: [float(k + j) for j in range(8)] for k in range(50)}

    @tb.compile
    def f(x: tb.Tensor) -> tb.Tensor:
        return x * tables[3][1]

    assert f(tb.ones((2,))).tolist() == [4.0, 4.0]
    assert len(f.replays[0].guards) < 50 * 8
    tables[3][1] = 7.0
    assert f(tb.ones((2,))).tolist() == [7.0, 7.0]
