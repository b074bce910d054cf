"""The remainder of a vectorized loop is no vector loop itself, where it is short or seldom there."""

from __future__ import annotations

import pytest
from tensorbus.decompose.tracer import trace
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.ir.index_expr import const
from tensorbus.lowering.ir.layout import Layout, packed
from tensorbus.lowering.ir.verify import verify
from tensorbus.lowering.program.lower import Program, lower
from tensorbus.lowering.schedules.reduction.chunks import Axis, plan_chunks
from tensorbus.lowering.target import Target
from tensorbus.ops.definition import Spec

TARGET = Target(tasks_to_fill=4, work_items_to_fill=64, lanes=64, row_per_task=True)


def summed(shape: tuple[int, ...], axis: tuple[int, ...], layout: Layout | None = None) -> Program:
    graph = trace("sum", [Spec(shape, dt.float32)], {"axis": axis, "keepdims": False, "dtype": None})
    program = lower(graph, [layout or packed(0, shape)], TARGET, sized=True)
    for kernel in program.kernels():
        verify(kernel)
    return program


def test_chunks_of_one_long_row_have_a_rest_that_is_seldom_there() -> None:
    text = str(summed((100_000,), (0,)))
    assert text.count(" rest:") == 1, "behind the blocks of lanes, which come together half by half"


def test_short_rows_have_loops_of_few_lanes_and_a_rest_of_fewer() -> None:
    text = str(summed((5000, 50), (1,)))
    assert "range(0, 8) unroll" in text
    assert text.count(" rest:") == 1


def test_chunks_along_another_axis_leave_a_rest_in_each_row() -> None:
    apart = Layout(0, (100_000, 50), (64, 1))
    text = str(summed(apart.shape, (0, 1), apart))
    assert "range(0, 8) unroll" in text
    assert " rest:" in text


@pytest.mark.parametrize("length", [1025, 4096, 65_537, 100_000, 1_000_003])
def test_chunks_of_rows_are_whole_lanes_and_cover_the_row_once(length: int) -> None:
    axes = [Axis(length=const(length), value=length, reduced=True)]
    chunks = plan_chunks(axes, 64, True, TARGET, floating=True)
    if chunks is None:
        assert length < 2048
        return
    assert chunks.size % 64 == 0
    assert (chunks.count - 1) * chunks.size < length <= chunks.count * chunks.size


@pytest.mark.parametrize(
    ("lengths", "cut"),
    [((8, 64, 3136), 1), ((512, 3136), 0), ((16, 16, 16, 100), 0), ((64, 50_257), 1), ((2, 3, 1_000_003), 2)],
)
def test_whole_rows_are_walked_where_a_piece_of_one_has_few_vectors(
    lengths: tuple[int, ...], cut: int
) -> None:
    axes = [Axis(length=const(n), value=n, reduced=True) for n in lengths]
    chunks = plan_chunks(axes, 64, True, TARGET, floating=True)
    assert chunks is not None
    assert chunks.axis == cut
    assert chunks.count >= 16
    assert chunks.axis < len(lengths) - 1 or chunks.size >= 8 * 64
