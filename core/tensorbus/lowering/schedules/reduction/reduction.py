"""The schedules of reductions: a row to a task, an output to a work-item, or chunks in two stages.

Long sums are always cut into chunks and lanes, so that float32 sums stay accurate as well as parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt, prod
from typing import Final

from ....backend_interface.graph import Graph
from ....dtypes.definition import DType, int64
from ...fusion.materialize import cost_of
from ...ir import index_expr as ix
from ...ir.builder import Builder, Launch
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import KernelTask, LaunchList, element_offset, parallel_loops
from ...ir.layout import Layout, Shape, packed
from ...ir.loop_ir import INDEX, Cast, Const, Expr, Kind, Load, Var
from ...op_sets import calls_function
from ...target import Target
from ..pointwise.vector_access import vector_width
from ..pointwise.vectorize import PLAIN, Vectors, row_vectors
from ..schedule import Schedule, ScheduleRequest, Verdict
from ..workgroup import Workgroup
from .blocked_sum import Nest, Span, block_of, registers
from .column_reduction_cpu import reduce_in_panels
from .reducer import ProductReducer, Reducer, State
from .reduction_loop import Element, reduce_in_lanes, reduce_in_vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of a reduction's domain."""

    length: Expr
    value: int
    reduced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """Axis ``axis`` cut into ``count`` pieces of ``size``, which are walked in parallel.

    ``woven`` pieces take every ``count``-th element, so that items side by side read side by side.
    """

    axis: int
    size: int
    count: int
    woven: bool = False


Finish = Callable[[tuple[Expr, ...], State], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWorkgroup:
    """What the last group of a result does: ``part`` is what a chunk has come to, by its number and place.

    ``finish`` gets the place of the result, and what all chunks come to.
    """

    part: Element
    finish: Finish


def fold(
    b: Builder, reducer: Reducer | ProductReducer, axes: Sequence[Axis], element: Element, finish: Finish,
    target: Target, chunks: Chunks | None = None, lanes: int = 1, vectors: Vectors = PLAIN,
    ordered: bool = True, unrolled: bool = False,
) -> list[tuple[Var, Expr, int]]:  # fmt: skip
    """Emit a reduction; return its parallel loops.

    ``finish`` gets the kept indices, the chunk's number first where there are chunks. ``lanes`` > 1 walks the
    last axis that many elements at a time, in ``vectors`` where their ops are all that this takes.
    ``ordered`` says that elements are numbered in the order in which they are walked. ``unrolled`` loops have
    a constant length.
    """
    kept = [k for k, a in enumerate(axes) if not a.reduced]
    parallel = [(axes[k].length, axes[k].value) for k in kept]
    woven = chunks is not None and chunks.woven
    if chunks is not None:
        parallel.insert(len(parallel) if woven else 0, (b.size("chunks", chunks.count), chunks.count))
    outer, loops = parallel_loops(b, [n for n, _ in parallel], [v for _, v in parallel])
    if woven:
        outer = (outer[-1], *outer[:-1])
    index: list[Expr] = [ZERO] * len(axes)
    for k, i in zip(kept, outer[-len(kept) :] if kept else (), strict=True):
        index[k] = i
    over = [k for k, a in enumerate(axes) if a.reduced]

    def bounds(k: int) -> Span:
        if chunks is None or chunks.axis != k:
            return Span(ZERO, const(axes[k].value) if unrolled else axes[k].length, axes[k].value)
        if chunks.woven:
            count = b.size("chunks", chunks.count)
            left = ix.add(ix.subtract(axes[k].length, outer[0]), ix.subtract(count, ONE))
            return Span(ZERO, b.let(ix.quotient(left, count), "stop"), chunks.size)
        size = b.size("chunk", chunks.size)
        start = b.let(ix.multiply(outer[0], size), "start")
        return Span(start, b.let(ix.minimum(ix.add(start, size), axes[k].length), "stop"), chunks.size)

    bound = {k: bounds(k) for k in over}
    block = block_of(reducer, target.heuristics)
    if lanes > 1:
        found = reduce_in_vectors(b, reducer, index, over, bound, element, vectors, block)
        seldom = chunks is not None and chunks.axis == over[-1]  # the last of many chunks has any
        rest: Kind = "rest" if seldom else "serial"
        limits = target.heuristics
        found = found or reduce_in_lanes(b, reducer, index, over, bound, element, lanes, limits, rest=rest)
        finish(tuple(outer), found)
        return loops
    ordered = ordered and reducer.is_arg_reduction and not (chunks is not None and chunks.woven)
    walked = reducer.over(axes[over[0]].value) if ordered and isinstance(reducer, Reducer) else reducer
    first = walked.first(bound[over[0]].start) if ordered else reducer.start()
    state = tuple(b.let(e, "acc", mutable=True) for e in first)
    sums = registers(b, reducer, state, 0 if unrolled else block)

    def follow(state: tuple[Var, ...]) -> State:
        """Return the state with one more element."""
        if not ordered:
            return reducer.combine(b, state, element(tuple(index)))
        value = element(tuple(index))[0]
        return walked.step(b, state, (value, Cast(index[over[0]], walked.dtypes[-1])))

    def put(k: int, i: Expr) -> None:
        index[k] = i
        if chunks is not None and chunks.woven and chunks.axis == k:
            index[k] = ix.add(ix.multiply(i, b.size("chunks", chunks.count)), outer[0])

    def one() -> None:
        for var, e in zip(sums.state, follow(sums.state), strict=True):
            b.assign(var, e)

    loops_over = [Nest(bound[k], partial(put, k)) for k in over]
    sums.nest(loops_over, one, 1, "unroll" if unrolled else "serial")
    finish(tuple(outer), (state[0], Cast(state[1], int64)) if ordered else state)
    return loops


def plan_chunks(
    axes: Sequence[Axis], wanted: int, rows: bool, target: Target, *, floating: bool, alone: int = 0
) -> Chunks | None:  # fmt: skip
    """Return how to cut a reduction that has too few outputs for the device, or is too long to be exact.

    Up to ``alone`` elements in all are left to one task. Pieces of rows are whole ``lanes`` of the target,
    but for the last one, and many of them; otherwise other axes are cut.
    """
    limits, lanes = target.heuristics, target.lanes
    over = [k for k, a in enumerate(axes) if a.reduced]
    if not over or any(a.value == 0 for a in axes):
        return None
    outputs = prod(a.value for a in axes if not a.reduced)
    total = prod(axes[k].value for k in over)
    if outputs * total <= alone:
        return None
    axis = max(over, key=lambda k: (axes[k].value, -k))
    length = axes[axis].value
    least = limits.row_min_chunk if rows else target.min_chunk
    count = min(-(-wanted // outputs), max(total // least, 1)) if outputs < wanted else 1
    if floating and (rows or total > limits.sum_max_length):
        count = max(count, -(-total // limits.sum_max_length))
    if not rows and outputs >= limits.column_chunk and length >= 4 * limits.column_chunk:
        # Work-items of a workgroup walk down side by side; a short walk keeps what they share in cache.
        count = max(count, length // limits.column_chunk)
    count = min(count, length)
    if count < 2:
        return None
    size = -(-length // count)
    if rows and axis == len(axes) - 1:
        size = -(-size // lanes) * lanes
        outer = max(over[:-1], key=lambda k: (axes[k].value, -k), default=axis)
        if size < limits.row_piece_min_vectors * lanes and min(count, axes[outer].value) >= -(
            -length // size
        ):
            axis, length = outer, axes[outer].value  # whole rows are walked faster than pieces
            size = -(-length // min(count, length))
    found = Chunks(axis=axis, size=size, count=-(-length // size), woven=not rows and axis == len(axes) - 1)
    return found if found.count > 1 else None


def is_window(target: Target, lengths: Sequence[int]) -> bool:
    """Return whether what a work-item goes over is a window, small enough to be written out."""
    limits = target.heuristics
    return not target.row_per_task and len(lengths) > 1 and prod(lengths) <= limits.window_unroll


def single_task_limit(target: Target, graph: Graph, *, rows: bool) -> int:
    """Return how many elements of a reduction are left to one item: it may be the last one of others."""
    limits = target.heuristics
    if not target.last_task_epilogue or any(calls_function(n.op) for n in graph):
        return 0
    return (
        limits.single_task_elements if rows else limits.single_task_elements // 8
    )  # which no vectors add up


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How one reduction is cut: ``rows``: a task to each; ``by_workgroups``: workgroups reduce the chunks."""

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
        self.kept, self.layout = _result(task)
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
        size = chunks.count * prod(self.kept)
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
        made = reduce_by_workgroups(
            b, self.target, self.reducer, self.axes, self.element, keep, chunks,
            ordered=True, whole=whole, lanes=lanes,
        )  # fmt: skip
        steps.add(made, {**self.slots, **named, "out": self.task.out})

    def two_stages(self, plan: _Plan, steps: LaunchList) -> None:
        """Append the launch that reduces chunks, and those that join them."""
        b, chunks = self.b, plan.chunks
        assert chunks is not None
        keep, named = self._parts(chunks, steps)
        if plan.by_workgroups:
            made = reduce_by_workgroups(
                b, self.target, self.reducer, self.axes, self.element, keep, chunks, ordered=True
            )
        else:
            lanes = self.target.lanes if plan.rows else 1
            loops = fold(
                b, self.reducer, self.axes, self.element, keep, self.target, chunks, lanes, self.vectors
            )
            made = b.finish(loops, task=plan.rows)
        steps.add(made, {**self.slots, **named})
        _second_stage(self.task, steps, self.reducer, chunks.count, self.kept, named, self.layout)


def _result(task: KernelTask) -> tuple[Shape, Layout]:
    """Return the shape of what a reduction keeps, and how its result lies."""
    shape, over = task.root.inputs[0].spec.shape, task.root.attrs["axis"]
    kept = tuple(n for k, n in enumerate(shape) if k not in over)
    return kept, packed(task.out, kept) if task.strides is None else Layout(task.out, kept, task.strides)


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
    kept, layout = _result(task)
    found = reduce_in_panels(task, steps, reducer, layout)
    if found is None:
        return False
    parts, count, done = found
    if not done:
        _second_stage(task, steps, reducer, count, kept, parts, layout)
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
    kept: tuple[int, ...],
    parts: dict[str, int],
    layout: Layout,
) -> None:
    """Append what reduces ``count`` parts, which lie one behind the other; many of them in more stages."""
    limits = steps.target.heuristics
    b, target = Builder(f"tb_{task.root.op}_rest"), steps.target
    lengths = [b.size(f"n{k}", n) for k, n in enumerate(kept)]
    axes = [Axis(length=b.size("parts", count), value=count, reduced=True)]
    axes += [Axis(length=e, value=n, reduced=False) for e, n in zip(lengths, kept, strict=True)]
    chunks = None
    if (
        count
        > (
            limits.workgroup_join_max_parts
            if is_joined_by_workgroups(target, count, prod(kept))
            else limits.serial_join_max_parts
        )
        and prod(kept) < target.work_items_to_fill
    ):
        size = (
            limits.workgroup_join_max_parts
            if is_joined_by_workgroups(target, count, prod(kept))
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
    fewer = [steps.temporary(chunks.count * prod(kept), d) for d in reducer.dtypes]
    made = join(b, target, reducer, axes, element, _keeper(b, lengths, chunks, "less"), chunks)
    steps.add(made, {**parts, **{f"less{k}": slot for k, slot in enumerate(fewer)}})
    named = {f"part{k}": slot for k, slot in enumerate(fewer)}
    _second_stage(task, steps, reducer, chunks.count, kept, named, layout)


def is_joined_by_workgroups(target: Target, count: int, outputs: int) -> bool:
    """Return whether workgroups join ``count`` parts of each output: else few items walk them."""
    limits = target.heuristics
    return (
        not target.row_per_task
        and count >= limits.workgroup_join_min_parts
        and outputs <= target.work_items_to_fill // limits.workgroup_max
    )


def join(
    b: Builder, target: Target, reducer: Reducer | ProductReducer, axes: Sequence[Axis], element: Element,
    finish: Finish, chunks: Chunks | None = None,
) -> Launch:  # fmt: skip
    """Emit what reduces parts along the first axis, the only one that is reduced; return the launch."""
    if is_joined_by_workgroups(target, axes[0].value, prod(a.value for a in axes[1:])):
        return reduce_by_workgroups(b, target, reducer, axes, element, finish, chunks)
    return b.finish(fold(b, reducer, axes, element, finish, target, chunks, ordered=False))


def workgroup_chunks(axes: Sequence[Axis], target: Target) -> Chunks | None:
    """Return how to cut rows of a reduction over its last axes for workgroups."""
    limits = target.heuristics
    over = [k for k, a in enumerate(axes) if a.reduced]
    if target.row_per_task or over != list(range(len(axes) - len(over), len(axes))):
        return None
    rows, length = prod(a.value for a in axes if not a.reduced), prod(axes[k].value for k in over)
    count = max(
        min(
            -(-target.work_items_to_fill // (rows * limits.workgroup_max)),
            length // (limits.workgroup_max * limits.workgroup_read_ahead),
        ),
        1,
    )
    size = -(-length // (count * limits.workgroup_max)) * limits.workgroup_max
    return Chunks(axis=over[0], size=size, count=-(-length // size)) if length > size else None


def reduce_by_workgroups(
    b: Builder, target: Target, reducer: Reducer | ProductReducer, axes: Sequence[Axis], element: Element,
    finish: Finish, chunks: Chunks | None, ordered: bool = False, whole: LastWorkgroup | None = None,
    lanes: int = 1,
) -> Launch:  # fmt: skip
    """Emit a reduction over the first or the last axes by workgroups; return the launch.

    ``chunks`` are pieces of what all these axes come to; ``finish`` gets their number first. ``ordered`` says
    that the places to be found are those along these axes. ``whole`` joins the chunks of each result.
    ``lanes``: elements of a vector, of which chunks and axes are made.
    """
    limits = target.heuristics
    over, kept = [k for k, a in enumerate(axes) if a.reduced], [a for a in axes if not a.reduced]
    along, total = [axes[k].length for k in over], prod(axes[k].value for k in over)
    stop = along[0] if len(along) == 1 else b.size("row", total)
    stop = b.size("vectors", total // lanes) if lanes > 1 else stop
    length = chunks.size if chunks is not None else total
    items = max(limits.row_min_length, min(limits.workgroup_max, 1 << (length // 4).bit_length()))
    workgroup = Workgroup.of(b, items, target)
    lengths, values = [a.length for a in kept], [a.value for a in kept]
    if chunks is not None:
        lengths, values = [b.size("chunks", chunks.count), *lengths], [chunks.count, *values]
    row, rows = Var("i1", INDEX), prod(values)
    index = tuple(i if isinstance(i, Var | Const) else b.let(i, "i") for i in ix.unflatten(row, lengths))
    bounds = Span(ZERO, stop, total // lanes)
    if chunks is not None:
        size = b.size("chunk", chunks.size // lanes)
        start = b.let(ix.multiply(index[0], size), "start")
        bounds = Span(start, b.let(ix.minimum(ix.add(start, size), stop), "stop"), chunks.size // lanes)
    inner = index if chunks is None else index[1:]

    def at(element_offset: Expr) -> State:
        walked = [
            i if isinstance(i, Var | Const) else b.let(i, "i") for i in ix.unflatten(element_offset, along)
        ]
        return element((*walked, *inner) if over[0] == 0 else (*inner, *walked))

    block = block_of(reducer, limits)
    state = workgroup.reduce(reducer, bounds, at, block, ordered, lanes)
    with b.when(ix.less(workgroup.item, ONE)):
        finish(index, state)
    if chunks is not None and whole is not None:
        count = b.size("chunks", chunks.count)
        with b.when(b.arrive(ix.flatten(inner, [a.length for a in kept]), count)):
            all_of = workgroup.reduce(
                reducer, Span(ZERO, count, chunks.count), lambda chunk: whole.part((chunk, *inner)), block
            )
            with b.when(ix.less(workgroup.item, ONE)):
                whole.finish(inner, all_of)
    return workgroup.finished(b.finish([workgroup.loop, (row, b.size("rows", rows), rows)]))


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
