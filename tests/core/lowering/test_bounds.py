"""The verifier refuses a program of which an index may leave its buffer, and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import tensorbus as tb
from fused import CPU, THIN, program_of, record, spec
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.ir.affine_bounds import Knowledge, Sum
from tensorbus.lowering.ir.index_expr import ONE, add, const
from tensorbus.lowering.ir.kernel_task import KernelLaunch
from tensorbus.lowering.ir.layout import packed
from tensorbus.lowering.ir.loop_ir import Apply, For, Select, Store
from tensorbus.lowering.ir.verify import IRError
from tensorbus.lowering.program.program import Program
from tensorbus.lowering.program.verify import verify_program
from tensorbus.lowering.target import Target

CASES: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "map": (lambda x, y: x * y + 1, [spec(30, 50), spec(50)]),
    "transpose": (lambda x: x.T + 1, [spec(300, 500)]),
    "concat": (lambda x, y: tb.concat([x, y * 2], axis=1), [spec(4, 5), spec(4, 7)]),
    "flip": (lambda x: tb.flip(x)[1::3] + 1, [spec(40, 3)]),
    "row sums": (lambda x: x.sum(axis=1), [spec(70, 1000)]),
    "column sums": (lambda x: x.sum(axis=0), [spec(1000, 70)]),
    "everything": (lambda x: (x * x).sum(), [spec(70001)]),
    "softmax": (lambda x: tb.softmax(x, axis=1), [spec(64, 300)]),
    "scan": (lambda x: tb.cumulative_sum(x, axis=1), [spec(9, 1000)]),
    "rows": (lambda x, i: tb.take(x, i, axis=0), [spec(10, 6), spec(7, dtype=dt.int64)]),
    "sort": (lambda x: tb.sort(x, axis=0), [spec(90, 4)]),
}


def case(name: str, target: Target = CPU) -> tuple[Program, list[Any]]:
    """Return a program, and the layouts of its inputs."""
    function, specs = CASES[name]
    graph, program = program_of(record(function, *specs), target)
    return program, [packed(k, n.spec.shape) for k, n in enumerate(graph.inputs)]


def mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """Return loop IR with each part changed, the inner ones first."""
    if isinstance(x, tuple):
        return tuple(mapped(part, change) for part in x)
    if not is_dataclass(x) or isinstance(x, dt.DType):
        return x
    return change(replace(x, **{f.name: mapped(getattr(x, f.name), change) for f in fields(x)}))


def changed(program: Program, change: Callable[[Any], Any]) -> Program:
    """Return a program with every part of its kernels' bodies changed."""

    def one(step: KernelLaunch) -> KernelLaunch:
        kernel = replace(step.launch.kernel, body=mapped(step.launch.kernel.body, change))
        return replace(step, launch=replace(step.launch, kernel=kernel))

    steps = tuple(
        one(s) if isinstance(s, KernelLaunch) else replace(s, steps=tuple(map(one, s.steps)))
        for s in program.steps
    )
    return replace(program, steps=steps)


@pytest.mark.parametrize("target", [CPU, THIN], ids=["cores", "work-items"])
@pytest.mark.parametrize("name", CASES)
def test_no_index_is_thought_larger_than_it_is(name: str, target: Target) -> None:
    """With one element less than each buffer has, the same program is refused: each last one is reached."""
    program, layouts = case(name, target)
    verify_program(program, layouts)
    outputs = {o.slot for o in program.outputs} if name != "sort" else set()
    for slot in outputs:
        size, kind = program.sizes[slot]
        small = replace(program, sizes={**program.sizes, slot: (size - 1, kind)})
        with pytest.raises(IRError, match="goes from"):
            verify_program(replace(small, outputs=()), layouts)
    if name not in ("rows", "flip"):  # these leave some out
        for k, x in enumerate(layouts):
            fewer = [*layouts]
            fewer[k] = replace(x, shape=(*x.shape[:-1], x.shape[-1] - 1))
            with pytest.raises(IRError, match=r"'x\d' has elements from 0"):
                verify_program(program, fewer)


@pytest.mark.parametrize("name", ["map", "concat", "flip", "row sums", "column sums", "scan"])
def test_a_loop_that_runs_once_too_often_is_refused(name: str) -> None:
    program, layouts = case(name)

    def longer(x: Any) -> Any:
        return replace(x, stop=add(x.stop, ONE)) if isinstance(x, For) and x.kind != "unroll" else x

    with pytest.raises(IRError, match="has elements from 0 to"):
        verify_program(changed(program, longer), layouts)


def test_an_index_that_is_off_by_one_is_refused() -> None:
    program, layouts = case("map")

    def shifted(x: Any) -> Any:
        return replace(x, index=add(x.index, const(-1))) if isinstance(x, Store) else x

    with pytest.raises(IRError, match="goes from -1 to 1498"):
        verify_program(changed(program, shifted), layouts)


def test_rows_that_indices_name_are_read_behind_a_condition() -> None:
    program, layouts = case("rows")

    def unguarded(x: Any) -> Any:
        return x.then if isinstance(x, Select) else x

    with pytest.raises(IRError, match="goes from -"):
        verify_program(changed(program, unguarded), layouts)


def test_a_condition_that_lets_one_too_many_through_is_refused() -> None:
    program, layouts = case("rows")

    def lax(x: Any) -> Any:
        return replace(x, op="less_equal") if isinstance(x, Apply) and x.op == "less" else x

    with pytest.raises(IRError, match="goes from 0 to 65"):
        verify_program(changed(program, lax), layouts)


def test_whole_numbers_are_bounded_by_facts() -> None:
    known = Knowledge()
    i, j = known.unknown(0, 9), known.unknown(0, 9)
    assert known.most(i.plus(j, 3)) == 36
    with known.assuming((i.plus(j).plus(Sum((), -4)),)) as possible:  # i + j <= 4
        assert possible
        assert known.most(i.plus(j, 3)) == 12
        assert known.least(i.plus(j)) == 0
    assert known.most(i.plus(j)) == 18
    with known.assuming((Sum((), 1),)) as possible:
        assert not possible
    with known.assuming((Sum((), 1).plus(i, -1), i)) as possible:  # 1 <= i <= 0
        assert not possible
    low = known.smaller(i.plus(Sum((), 5)), j.times(2))
    assert known.most(low) == 14
    assert known.least(low.plus(i, -1)) == -9
    assert known.most(low.plus(i, -1)) == 5


def test_many_unknowns_are_bounded_one_by_one() -> None:
    """As an index of many axes is, each of which stands behind a condition of its own."""
    known = Knowledge()
    axes = [known.unknown(0, 9) for _ in range(8)]
    index = Sum()
    for axis in axes:
        index = index.times(5).plus(axis)
    with known.assuming([axis.plus(Sum((), -4)) for axis in axes]):
        assert known.most(index, 5**8 - 1) == 5**8 - 1
    assert known.most(index, 5**8 - 1) > 5**8 - 1


def test_positions_that_steps_work_out_for_others_are_theirs() -> None:
    """Where rows are added by rank, a condition on one array says whether there is a row in another."""

    def added(x: Any, i: Any, g: Any) -> Any:
        x.requires_grad_()
        tb.take(x, i, axis=0).backward(g)
        return x.grad

    specs = [spec(400, 512), spec(4096, dtype=dt.int64), spec(4096, 512)]
    graph, program = program_of(record(added, *specs), replace(THIN, subgroup_size=32))
    verify_program(program, [packed(k, n.spec.shape) for k, n in enumerate(graph.inputs)])
    assert "tb_scatter_add_ranked" in {kernel.name for kernel in program.kernels()}


def test_what_is_below_the_smaller_of_two_is_below_both() -> None:
    """In steps of four it then ends four before, not one."""
    known = Knowledge()
    start = known.unknown(0, 99).times(4)
    stop = known.smaller(start.plus(Sum((), 2048)), Sum((), 300))
    with known.assuming((start.plus(stop, -1).plus(Sum((), 1)),)):
        assert known.most(start) == 296
    begin = known.larger(start.plus(Sum((), -7)), Sum((), 30))
    with known.assuming((begin.plus(start, -1).plus(Sum((), 1)),)):
        assert known.least(start) == 32


@pytest.mark.parametrize("length", [3000, 3001, 5000])
def test_vectors_end_where_rows_do(length: int) -> None:
    """Rows that are scanned in parts, the last of them shorter."""
    target = replace(
        THIN, tasks_to_fill=132 * 64, work_items_to_fill=132 * 1024, min_chunk=8, vector_bytes=16,
        subgroup_size=32,
    )  # fmt: skip
    _, program = program_of(record(CASES["scan"][0], spec(7, length)), target)
    assert "tb_cumulative_sum_workgroup" in {kernel.name for kernel in program.kernels()}


def test_vectors_of_rows_of_several_axes_begin_at_multiples_of_their_length() -> None:
    """What is left of such a multiple by the length of an axis is one as well."""
    target = replace(THIN, vector_bytes=16, subgroup_size=32)
    _, program = program_of(record(lambda x: tb.flip(x, axis=0).max() + x.sum(), spec(64, 16)), target)
    assert any("% n1)" in text and "<4>" in text for text in map(str, program.kernels()))


def test_sums_in_blocks_of_blocks_are_bounded() -> None:
    """Ten million elements are three levels of blocks, each of which ends where the one around it does."""
    assert program_of(record(tb.sum, spec(10_000_000)), THIN)[1].steps
