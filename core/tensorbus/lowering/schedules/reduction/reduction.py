"""The schedules of reductions: a row to a task, an output to a work-item, or chunks in two stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Final

from ....dtypes.definition import DType
from ...fusion.materialize import cost_of
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO
from ...ir.kernel_task import KernelTask, LaunchList, element_offset
from ...ir.layout import Layout, Shape, packed
from ...ir.loop_ir import Cast, Expr, Load
from ...target import Target
from ..pointwise.vector_access import vector_width
from ..pointwise.vectorize import row_vectors
from ..schedule import Schedule, ScheduleRequest, Verdict
from .chunks import Axis, Chunks, is_window, plan_chunks, single_task_limit, workgroup_chunks
from .column_reduction_cpu import reduce_in_panels
from .fold import Finish, LastWorkgroup, fold, is_joined_by_workgroups, join, reduce_by_workgroups
from .reducer import Reducer, State


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The cut of one reduction: ``rows``: a task to each; ``by_workgroups``: workgroups reduce the chunks."""

    rows: bool
    chunks: Chunks | None
    by_workgroups: bool

    @classmethod
    def of(cls, task: KernelTask, target: Target, costly: bool) -> _Plan:
        """Return the plan. ``costly``: the operand calls functions for each element."""
        limits = target.heuristics
        operand, over = task.root.inputs[0], task.root.attrs["axis"]
        shape = operand.spec.shape
        axes = [Axis(length=ONE, value=n, reduced=k in over) for k, n in enumerate(shape)]
        rows = (
            target.row_per_task and bool(over) and over[-1] == len(shape) - 1
            and shape[-1] >= limits.row_min_length and not costly
        )  # fmt: skip
        chunks = plan_chunks(
            axes, target.tasks_to_fill if rows else target.work_items_to_fill, rows,
            target, floating=operand.spec.dtype.is_floating,
            alone=single_task_limit(target, task.graph, rows=rows),
        )  # fmt: skip
        by_workgroups = workgroup_chunks(axes, target) if chunks is not None else None
        return cls(rows=rows, chunks=by_workgroups or chunks, by_workgroups=by_workgroups is not None)


class _Reduction:
    """One reduction as it is written: its axes, what reads an element of it, and where its result lies."""

    def __init__(self, task: KernelTask, target: Target) -> None:
        self.task, self.target = task, target
        root, operand = task.root, task.root.inputs[0]
        self.b = b = Builder(f"tb_{root.op}")
        self.inliner, self.slots = task.inliner(b)
        self.over, self.shape = root.attrs["axis"], operand.spec.shape
        self.axes = [
            Axis(length=self.inliner.length(operand, k), value=n, reduced=k in self.over)
            for k, n in enumerate(self.shape)
        ]
        self.reducer = Reducer.of(root.op, operand.spec.dtype)
        self.vectors = row_vectors(target, [n.spec.dtype for n in task.graph if n.op == "input"])
        self.result_shape, self.layout = _result(task)
        self.lengths = [a.length for a in self.axes if not a.reduced]

    def element(self, index: tuple[Expr, ...]) -> State:
        """Return the state of one element."""
        with self.inliner.scope():
            position = index[self.over[0]] if self.over else ZERO
            return self.reducer.element(self.inliner.value(self.task.root.inputs[0], index), position)

    def finisher(self) -> Finish:
        """Return what stores a result."""
        return _finisher(self.b, self.reducer, self.task.root.spec.dtype, self.lengths, self.layout)

    def one_pass(self, plan: _Plan, steps: LaunchList) -> None:
        """Append the launch in which each result is reduced by one task or work-item."""
        loops = fold(
            self.b, self.reducer, self.axes, self.element, self.finisher(), self.target,
            lanes=self.target.lanes if plan.rows else 1, vectors=self.vectors,
            unrolled=is_window(self.target, [self.shape[k] for k in self.over]),
        )  # fmt: skip
        steps.add(self.b.finish(loops, task=plan.rows), {**self.slots, "out": self.task.out})

    def _parts(self, chunks: Chunks, steps: LaunchList) -> tuple[Finish, dict[str, int]]:
        """Return what stores the states of chunks, and the buffers of these."""
        size = chunks.count * prod(self.result_shape)
        partial = [steps.temporary(size, d) for d in self.reducer.dtypes]
        keep = _keeper(self.b, self.lengths, chunks, "part")
        return keep, {f"part{k}": slot for k, slot in enumerate(partial)}

    def last_workgroup_joins(self, plan: _Plan, steps: LaunchList) -> None:
        """Append the launch whose workgroups take chunks, and the last of each result joins them."""
        b, chunks = self.b, plan.chunks
        assert chunks is not None
        keep, named = self._parts(chunks, steps)

        def part(index: tuple[Expr, ...]) -> State:
            at = ix.flatten(index, [b.size("chunks", chunks.count), *self.lengths])
            return tuple(
                Load(b.buffer(name, d, shared=True), at, d)
                for name, d in zip(named, self.reducer.dtypes, strict=True)
            )

        whole = LastWorkgroup(part=part, finish=self.finisher())
        read = [n.spec.dtype for n in self.task.graph if n.op == "input" and n.spec.shape == self.shape]
        lanes = vector_width(self.target, self.shape[-1], read)
        launch = reduce_by_workgroups(
            b, self.target, self.reducer, self.axes, self.element, keep, chunks,
            ordered=True, whole=whole, lanes=lanes,
        )  # fmt: skip
        steps.add(launch, {**self.slots, **named, "out": self.task.out})

    def two_stages(self, plan: _Plan, steps: LaunchList) -> None:
        """Append the launch that reduces chunks, and those that join them."""
        b, chunks = self.b, plan.chunks
        assert chunks is not None
        keep, named = self._parts(chunks, steps)
        if plan.by_workgroups:
            launch = reduce_by_workgroups(
                b, self.target, self.reducer, self.axes, self.element, keep, chunks, ordered=True
            )
        else:
            lanes = self.target.lanes if plan.rows else 1
            loops = fold(
                b, self.reducer, self.axes, self.element, keep, self.target, chunks, lanes, self.vectors
            )
            launch = b.finish(loops, task=plan.rows)
        steps.add(launch, {**self.slots, **named})
        _second_stage(self.task, steps, self.reducer, chunks.count, self.result_shape, named, self.layout)


def _result(task: KernelTask) -> tuple[Shape, Layout]:
    """Return the shape of what a reduction keeps, and how its result lies."""
    shape, over = task.root.inputs[0].spec.shape, task.root.attrs["axis"]
    lengths = tuple(n for k, n in enumerate(shape) if k not in over)
    return lengths, packed(task.out, lengths) if task.strides is None else Layout(
        task.out, lengths, task.strides
    )


def _keeps_last(task: KernelTask, target: Target) -> Verdict:
    """Return whether a reduction keeps a last axis that is wide enough for panels of columns."""
    limits = target.heuristics
    shape, over = task.root.inputs[0].spec.shape, task.root.attrs["axis"]
    if not target.row_per_task:
        return "columns are reduced by work-items"
    if not over or len(shape) - 1 in over or 0 in shape:
        return "it goes over the last axis, or over nothing"
    return (
        True
        if shape[-1] >= limits.row_min_length
        else f"the last axis is shorter than {limits.row_min_length}"
    )


def lower_reduction(task: KernelTask, steps: LaunchList) -> None:
    """Append the launches of a reduction that is part of another schedule."""
    if _keeps_last(task, steps.target) is True and lower_column_panels(task, steps):
        return
    plan, reduction = _Plan.of(task, steps.target, costly=False), _Reduction(task, steps.target)
    if plan.chunks is None:
        reduction.one_pass(plan, steps)
    elif _counts(plan, task, steps.target):
        reduction.last_workgroup_joins(plan, steps)
    else:
        reduction.two_stages(plan, steps)


def _counts(plan: _Plan, task: KernelTask, target: Target) -> bool:
    """Return whether there is a counter for each result of chunks that workgroups take."""
    return plan.by_workgroups and prod(_result(task)[0]) <= target.workgroup_counters


def lower_column_panels(task: KernelTask, steps: LaunchList) -> bool:
    """Append the launches of a reduction in panels of columns; False, and nothing, where that cannot be."""
    reducer = Reducer.of(task.root.op, task.root.inputs[0].spec.dtype)
    lengths, layout = _result(task)
    launches = reduce_in_panels(task, steps, reducer, layout)
    if launches is None:
        return False
    parts, count, done = launches
    if not done:
        _second_stage(task, steps, reducer, count, lengths, parts, layout)
    return True


def _finisher(b: Builder, reducer: Reducer, dtype: DType, lengths: Sequence[Expr], layout: Layout) -> Finish:
    def finish(index: tuple[Expr, ...], state: State) -> None:
        b.buffer("out", dtype, writes=True)
        value = state[-1]
        at = element_offset(b, "out", index, lengths, layout)
        b.store("out", at, Cast(value, dtype) if value.dtype is not dtype else value)

    return finish


def _second_stage(
    task: KernelTask,
    steps: LaunchList,
    reducer: Reducer,
    count: int,
    sizes: tuple[int, ...],
    parts: dict[str, int],
    layout: Layout,
) -> None:
    """Append what reduces ``count`` parts, which lie one behind the other; many of them in more stages."""
    limits = steps.target.heuristics
    b, target = Builder(f"tb_{task.root.op}_rest"), steps.target
    lengths = [b.size(f"n{k}", n) for k, n in enumerate(sizes)]
    axes = [Axis(length=b.size("parts", count), value=count, reduced=True)]
    axes += [Axis(length=e, value=n, reduced=False) for e, n in zip(lengths, sizes, strict=True)]
    chunks = None
    if (
        count
        > (
            limits.workgroup_join_max_parts
            if is_joined_by_workgroups(target, count, prod(sizes))
            else limits.serial_join_max_parts
        )
        and prod(sizes) < target.work_items_to_fill
    ):
        size = (
            limits.workgroup_join_max_parts
            if is_joined_by_workgroups(target, count, prod(sizes))
            else isqrt(count)
        )
        chunks = Chunks(axis=0, size=size, count=-(-count // size))

    def element(index: tuple[Expr, ...]) -> State:
        at = ix.flatten(index, [a.length for a in axes])
        return tuple(Load(b.buffer(name, d), at, d) for name, d in zip(parts, reducer.dtypes, strict=True))

    if chunks is None:
        finish = _finisher(b, reducer, task.root.spec.dtype, lengths, layout)
        steps.add(join(b, target, reducer, axes, element, finish), {**parts, "out": task.out})
        return
    fewer = [steps.temporary(chunks.count * prod(sizes), d) for d in reducer.dtypes]
    launch = join(b, target, reducer, axes, element, _keeper(b, lengths, chunks, "less"), chunks)
    steps.add(launch, {**parts, **{f"less{k}": slot for k, slot in enumerate(fewer)}})
    named = {f"part{k}": slot for k, slot in enumerate(fewer)}
    _second_stage(task, steps, reducer, chunks.count, sizes, named, layout)


def _keeper(b: Builder, lengths: Sequence[Expr], chunks: Chunks, name: str) -> Finish:
    """Return what stores the states of chunks in buffers ``name0``, ``name1`` ..., chunk by chunk."""

    def keep(index: tuple[Expr, ...], state: State) -> None:
        at = ix.flatten(index, [b.size("chunks", chunks.count), *lengths])
        for k, e in enumerate(state):
            b.store(b.buffer(f"{name}{k}", e.dtype, writes=True), at, e)

    return keep


def _plan(request: ScheduleRequest, target: Target) -> _Plan:
    limits = target.heuristics
    costly = not request.whole and cost_of(request.task.graph, limits) >= limits.function_ops
    return _Plan.of(request.collapsed, target, costly)


def _applies_panels(request: ScheduleRequest, target: Target) -> Verdict:
    single = request.single(target)
    return _keeps_last(request.collapsed, target) if single is True else single


def _build_panels(request: ScheduleRequest, launches: LaunchList) -> str | None:
    written = lower_column_panels(request.collapsed, launches)
    return None if written else "the language has no vectors for what it computes"


def _applies_one_pass(request: ScheduleRequest, target: Target) -> Verdict:
    single = request.single(target)
    if single is not True:
        return single
    plan = _plan(request, target)
    return True if plan.chunks is None else "there are too few results, or too long sums, for one pass"


def _build_one_pass(request: ScheduleRequest, launches: LaunchList) -> None:
    plan = _plan(request, launches.target)
    _Reduction(request.collapsed, launches.target).one_pass(plan, launches)


def _applies_last_workgroup(request: ScheduleRequest, target: Target) -> Verdict:
    single = request.single(target)
    if single is not True:
        return single
    counts = _counts(_plan(request, target), request.collapsed, target)
    return True if counts else "workgroups do not share rows, or cannot be counted for each result"


def _build_last_workgroup(request: ScheduleRequest, launches: LaunchList) -> None:
    plan = _plan(request, launches.target)
    _Reduction(request.collapsed, launches.target).last_workgroup_joins(plan, launches)


def _applies_two_stages(request: ScheduleRequest, target: Target) -> Verdict:
    return request.single(target)


def _build_two_stages(request: ScheduleRequest, launches: LaunchList) -> None:
    plan = _plan(request, launches.target)
    _Reduction(request.collapsed, launches.target).two_stages(plan, launches)


COLUMN_PANELS: Final = Schedule(
    name="column reduction in panels",
    about="a task takes a panel of columns and goes down it some rows at a time",
    kinds=frozenset({"reduction"}), applies=_applies_panels, build=_build_panels,
)  # fmt: skip
ONE_PASS: Final = Schedule(
    name="reduction in one pass",
    about="each result is reduced by one task or work-item",
    kinds=frozenset({"reduction"}), applies=_applies_one_pass, build=_build_one_pass,
)  # fmt: skip
LAST_WORKGROUP_JOINS: Final = Schedule(
    name="reduction whose last workgroup joins",
    about="workgroups take chunks of a long row, the last of them joins these",
    kinds=frozenset({"reduction"}), applies=_applies_last_workgroup, build=_build_last_workgroup,
)  # fmt: skip
TWO_STAGES: Final = Schedule(
    name="reduction in two stages",
    about="chunks are reduced side by side, then joined",
    kinds=frozenset({"reduction"}), applies=_applies_two_stages, build=_build_two_stages,
)  # fmt: skip
