"""Ops whose calls keep their order, in compiled programs as well."""

from __future__ import annotations

import tensorbus as tb
from tensorbus.library import custom_op
from tensorbus.library.custom_op import unregister


def test_ordered_ops_of_several_results_keep_their_order(device: str) -> None:
    """Compiled as well, those whose results nobody reads included."""
    calls: list[int] = []

    @custom_op("test::several", ordered=True)
    def several(xs: list[tb.Tensor], times: int) -> list[tb.Tensor]:
        calls.append(times)
        return [x * times for x in xs]

    several.register_fake(lambda xs, times: [(x.shape, x.dtype) for x in xs])

    def function(x: tb.Tensor, y: tb.Tensor) -> tuple[tb.Tensor, ...]:
        first = several([x, y], 2)
        second = several([first[0] + 1, x], 3)
        several([y], 5)
        third = several([second[1]], 7)
        several([x, y, x], 11)
        return first[1] + second[0], third[0]

    try:
        x, y = tb.arange(6.0, device=device).reshape((2, 3)), tb.ones((3,), device=device)
        run = tb.compile(function, fullgraph=True)
        right = [z.tolist() for z in function(x, y)]
        for _ in range(3):
            assert [z.tolist() for z in run(x, y)] == right
        assert calls == [2, 3, 5, 7, 11] * 4
    finally:
        unregister("test::several")
