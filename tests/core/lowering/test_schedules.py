"""What schedules write, as text: a kernel for each pattern, on a made-up processor with vectors of 4."""

from __future__ import annotations

import pytest
from tensorbus.backend_interface.graph import Graph, Node
from tensorbus.decompose.tracer import trace
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.ir.layout import Layout, packed
from tensorbus.lowering.ir.verify import verify
from tensorbus.lowering.program.lower import Program, lower
from tensorbus.lowering.target import Target
from tensorbus.ops.definition import Spec

OPS = frozenset({"add", "subtract", "multiply", "divide", "maximum", "exp", "rsqrt"})
TARGET = Target(tasks_to_fill=4, work_items_to_fill=64, lanes=4, vector_ops=OPS)
PLAIN = Target(tasks_to_fill=4, work_items_to_fill=64, lanes=4)


def one(
    op: str, *layouts: Layout, dtype: dt.DType = dt.float32, target: Target = TARGET, **attrs: object
) -> Program:
    """Return the program of one op over operands that lie so."""
    graph = trace(op, [Spec(layout.shape, dtype) for layout in layouts], attrs)
    program = lower(graph, list(layouts), target, sized=True)
    for step in program.steps:
        verify(step.launch.kernel)
    return program


def names(program: Program) -> list[str]:
    return [step.launch.kernel.name for step in program.steps]


def test_softmax_is_one_walk_for_each_reduction_and_one_for_the_result() -> None:
    program = one("softmax", packed(0, (6, 40)), axis=1)
    assert names(program) == ["tb_rows_divide"]
    text = str(program)
    assert text.count("var wide") == 2, "an accumulator of vectors for the maximum and for the sum"
    assert "out[((i0 * n1) + k" in text, "the exponentials are kept in the result's memory"
    assert text.count("exp(") == 2, "once in vectors, once for the rest of a row"


def test_without_vectors_a_compiler_makes_them_of_lanes() -> None:
    program = one("softmax", packed(0, (6, 40)), axis=1, target=PLAIN)
    assert names(program) == ["tb_rows_divide"]
    assert "unroll" in str(program)


def test_only_long_columns_have_a_kernel_for_each_reduction() -> None:
    assert names(one("softmax", packed(0, (6, 40)), axis=0)) == ["tb_rows_divide"]
    assert len(names(one("softmax", packed(0, (60_000, 40)), axis=0))) > 1


def test_a_length_is_no_literal() -> None:
    for lengths in ((40, 77, 120), (300, 333, 500)):  # the longer ones add up in blocks
        programs = [one("standardize", packed(0, (6, n)), rank=1, eps=1e-5) for n in lengths]
        texts = {"\n".join(map(str, program.kernels())) for program in programs}
        assert len(texts) == 1


@pytest.mark.parametrize(
    ("layout", "kernel"),
    [
        (packed(0, (5000,)), "tb_exp_wide"), (packed(0, (50,)), "tb_exp"),
        (Layout(0, (64, 64), (1, 64)), "tb_exp_tiles"), (Layout(0, (5000,), (2,)), "tb_exp"),
    ],
)  # fmt: skip
def test_a_map_is_walked_as_its_operand_lies(layout: Layout, kernel: str) -> None:
    assert names(one("exp", layout)) == [kernel]


def test_a_sum_across_rows_adds_whole_rows() -> None:
    program = one("sum", packed(0, (30, 100)), axis=(0,), keepdims=False)
    assert names(program) == ["tb_sum_panels"]
    text = str(program)
    assert "part0[(begins_3 + k_" in text
    assert "]<4> + x0[" in text


@pytest.mark.parametrize(("length", "kernels"), [(40, 1), (400, 4), (40000, 12)])
def test_sorting_takes_passes_where_rows_are_long(length: int, kernels: int) -> None:
    program = one("sort", packed(0, (1, length)), axis=1, descending=False)
    assert len(names(program)) == kernels


def test_bools_are_put_in_order_in_one_pass() -> None:
    length = 40000
    program = one("argsort", packed(0, (1, length)), dtype=dt.bool_, axis=1, descending=False)
    floats = one("argsort", packed(0, (1, length)), axis=1, descending=False)
    assert 4 * len(names(program)) == len(names(floats))


def test_many_indices_are_brought_in_order_first() -> None:
    few = _scatter(100)
    many = _scatter(5000)
    assert names(few)[1:] == ["tb_scatter_add"]
    assert names(many)[1:] == [
        "tb_scatter_count", "tb_scatter_begin", "tb_scatter_move", "tb_scatter_add_own"
    ]  # fmt: skip
    assert "report" in str(many.steps[1].launch.kernel)
    assert "report" not in str(many.steps[3].launch.kernel)


def _scatter(count: int) -> Program:
    x, value, index = (
        Node(op="input", attrs={"index": k}, spec=Spec(shape, dtype))
        for k, (shape, dtype) in enumerate(
            [((900,), dt.float32), ((count,), dt.float32), ((count,), dt.int64)]
        )
    )
    root = Node(op="scatter", inputs=(x, value, index), attrs={"mode": "add"}, spec=x.spec)
    layouts = [packed(0, (900,)), packed(1, (count,)), packed(2, (count,))]
    program = lower(Graph(inputs=(x, value, index), outputs=(root,)), layouts, TARGET)
    for step in program.steps:
        verify(step.launch.kernel)
    return program


def test_a_kernel_of_one_item_is_solo() -> None:
    """Nothing is beside it that it could be made a vector with, whatever its device does with rows."""
    across = Target(tasks_to_fill=4, work_items_to_fill=64, lanes=4, row_per_task=False)
    for target, shape, alone in ((PLAIN, (5,), True), (across, (3,), True), (across, (40, 3), False)):
        program = one("sum", packed(0, shape), target=target, axis=(len(shape) - 1,), keepdims=False)
        assert program.steps[0].launch.kernel.task is alone
