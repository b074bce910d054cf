"""Scans: serial along the axis, in chunks where that alone leaves cores idle."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from ....dtypes.definition import float32
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ZERO, const
from ...ir.kernel_task import KernelTask, LaunchList, parallel_loops
from ...ir.loop_ir import Apply, Cast, Expr, Load, Var
from ...op_sets import SCANS
from ...target import Target
from ..pointwise.stores import is_nontemporal
from ..pointwise.vectorize import SINGLE, Vectors, widen
from ..reduction.blocked_sum import Base, Span, block_of, running
from ..reduction.chunks import Axis, Chunks
from ..reduction.fold import fold
from ..reduction.reducer import Reducer, State
from ..schedule import Schedule, ScheduleRequest, Verdict
from .scan_gpu import lower_workgroup_scan, serves


def lower_scan(task: KernelTask, steps: LaunchList) -> None:
    """Append the launches of a scan that is part of another schedule."""
    if serves(task.root, steps.target) is True:
        lower_workgroup_scan(task, steps, Reducer.of(SCANS[task.root.op], task.root.inputs[0].spec.dtype))
    else:
        _in_chunks(task, steps)


def _in_chunks(task: KernelTask, steps: LaunchList) -> None:
    """Append the scan of each row in order, with what chunks before come to where there are any."""
    limits = steps.target.heuristics
    root, operand = task.root, task.root.inputs[0]
    shape, axis = operand.spec.shape, root.attrs["axis"]
    if 0 in shape:
        return
    reducer = Reducer.of(SCANS[root.op], operand.spec.dtype)
    dtype = reducer.dtypes[0]
    rest = tuple(n for k, n in enumerate(shape) if k != axis)
    per_task = steps.target.row_per_task and prod(shape[axis + 1 :]) < steps.target.lanes
    wanted = steps.target.tasks_to_fill if per_task else steps.target.work_items_to_fill
    count = min(-(-wanted // prod(rest)), shape[axis] // limits.scan_min_chunk)
    if not per_task and shape[axis] >= 4 * limits.column_chunk:
        count = max(count, shape[axis] // limits.column_chunk)
    block = block_of(reducer, limits)
    if reducer.op == "logsumexp":  # to join a block costs functions: chunks are its blocks
        count, block = max(count, -(-shape[axis] // limits.scan_min_chunk)), 0
    chunks, totals = None, 0
    if count > 1:
        size = -(-shape[axis] // count)
        chunks = Chunks(axis=axis, size=size, count=-(-shape[axis] // size))
        totals = steps.temporary(chunks.count * prod(rest), dtype)
        _totals(task, steps, chunks, totals, reducer)
        _offsets(steps, chunks.count, prod(rest), totals, reducer)
    b = Builder(f"tb_{root.op}")
    inliner, slots = task.inliner(b)
    lengths = [inliner.length(operand, k) for k in range(len(shape))]
    others = [n for k, n in enumerate(lengths) if k != axis]
    values = list(rest)
    if chunks is not None:
        others, values = [b.size("chunks", chunks.count), *others], [chunks.count, *values]
    outer, loops = parallel_loops(b, others, values)
    index = list(outer[1:] if chunks is not None else outer)
    span = Span(ZERO, lengths[axis], shape[axis])
    first = reducer.start()
    if chunks is not None:
        size_of = b.size("chunk", chunks.size)
        start = b.let(ix.multiply(outer[0], size_of), "start")
        stop = b.let(ix.minimum(ix.add(start, size_of), lengths[axis]), "stop")
        span = Span(start, stop, chunks.size)
        slots["totals"] = totals
        first = (Load(b.buffer("totals", dtype), ix.flatten(outer, others), dtype),)
    if per_task and axis == len(shape) - 1 and root.spec.dtype is dtype is float32 and reducer.op == "sum":

        def place_at(k: Expr) -> Expr:
            return ix.flatten((*index, k), lengths)

        def element(k: Expr) -> Expr:
            with inliner.scope():
                return reducer.element(inliner.value(operand, (*index, k)), ZERO)[0]

        nontemporal = (
            is_nontemporal(shape, dtype, limits) and shape[axis] % max(steps.target.scan_lanes, 1) == 0
        )
        in_vectors = _in_vectors(
            b, steps.target, reducer, first, span, block, element, place_at, nontemporal
        )  # fmt: skip
        if in_vectors is not None:
            first, span = in_vectors

    def one(i: Expr, state: tuple[Var, ...], base: Base) -> None:
        at = (*index[:axis], i, *index[axis:])
        with inliner.scope():
            new = reducer.element(inliner.value(operand, at), ZERO)
            b.assign(state[0], reducer.combine(b, state, new)[0])
            (total,) = base()
            out = b.buffer("out", root.spec.dtype, writes=True)
            value = total if root.spec.dtype is dtype else Cast(total, root.spec.dtype)
            b.store(out, ix.flatten(at, lengths), value)

    running(b, reducer, first, span, block, one)
    fills = {"out": shape[axis]} if chunks is None and axis == len(shape) - 1 else {}
    steps.add(b.finish(loops, task=per_task, fills=fills), {**slots, "out": task.out})


def _in_vectors(
    b: Builder, target: Target, reducer: Reducer, first: State, span: Span, block: int,
    element: Callable[[Expr], Expr], place_at: Callable[[Expr], Expr], nontemporal: bool,
) -> tuple[State, Span] | None:  # fmt: skip
    """Emit running sums a vector at a time; return what they come to, and what of the row is left.

    None, and nothing, where an element has no form in vectors.
    """
    lanes, dtype, (start, stop, most) = target.scan_lanes, reducer.dtypes[0], span
    if not lanes:
        return None
    works = True

    def vector(var: Expr, state: tuple[Var, ...], base: Base) -> None:
        nonlocal works
        assert isinstance(var, Var)
        with b.inner() as plain:
            value = element(var)
        wide = widen(plain, (value,), var, Vectors(ops=target.scan_ops, lanes=lanes, dtypes=SINGLE))
        if wide is None:
            works = False
            return
        b.block.extend(wide[0])
        sums = b.let(Apply("running_sum", wide[1], dtype, lanes), "sums")
        b.store(own, ZERO, sums)
        both = Apply("add", (sums, Cast(base()[0], dtype, lanes)), dtype, lanes)
        b.store(out, place_at(var), both, nontemporal=nontemporal)
        b.assign(state[0], Apply("add", (Load(own, const(lanes - 1), dtype), state[0]), dtype))

    whole = ix.multiply(ix.quotient(ix.subtract(stop, start), const(lanes)), const(lanes))
    out = b.buffer("out", dtype, writes=True)
    with b.inner() as body:
        even = b.let(ix.add(start, whole), "even")
        own = b.array(dtype, lanes)
        state = running(b, reducer, first, Span(start, even, most), block, vector, step=lanes)
    if not works:
        return None
    b.block.extend(body)
    return state, Span(even, stop, lanes - 1)


def _totals(task: KernelTask, steps: LaunchList, chunks: Chunks, totals: int, reducer: Reducer) -> None:
    """Append the reduction of each chunk."""
    operand = task.root.inputs[0]
    b = Builder(f"tb_{task.root.op}_totals")
    inliner, slots = task.inliner(b)
    axes = [
        Axis(length=inliner.length(operand, k), value=n, reduced=k == chunks.axis)
        for k, n in enumerate(operand.spec.shape)
    ]
    last = chunks.axis == len(axes) - 1

    def element(index: tuple[Expr, ...]) -> State:
        with inliner.scope():
            return reducer.element(inliner.value(operand, index), ZERO)

    def keep(index: tuple[Expr, ...], state: State) -> None:
        lengths = [b.size("chunks", chunks.count), *(a.length for a in axes if not a.reduced)]
        b.store(b.buffer("totals", reducer.dtypes[0], writes=True), ix.flatten(index, lengths), state[0])

    per_task = last and steps.target.row_per_task
    loops = fold(b, reducer, axes, element, keep, steps.target, chunks, steps.target.lanes if per_task else 1)
    steps.add(b.finish(loops, task=per_task), {**slots, "totals": totals})


def _offsets(steps: LaunchList, count: int, width: int, totals: int, reducer: Reducer) -> None:
    """Append what turns the chunks' states, in place, into those of all chunks before each."""
    b = Builder(f"tb_{reducer.op}_offsets")
    dtype = reducer.dtypes[0]
    row = b.size("n0", width)
    (column,), loops = parallel_loops(b, [row], [width])
    b.buffer("totals", dtype, writes=True)

    def one(k: Expr, state: tuple[Var, ...], base: Base) -> None:
        at = b.let(ix.flatten((k, column), (b.size("chunks", count), row)), "at")
        own = b.let(Load("totals", at, dtype), "own")
        b.store("totals", at, base()[0])
        b.assign(state[0], reducer.combine(b, state, (own,))[0])

    span, block = Span(ZERO, b.size("chunks", count), count), block_of(reducer, steps.target.heuristics)
    running(b, reducer, reducer.start(), span, block, one)
    steps.add(b.finish(loops), {"totals": totals})


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    return True


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    _in_chunks(request.collapsed, launches)


CHUNKED_SCAN: Final = Schedule(
    name="scan in chunks",
    about="each row is scanned in order, in chunks where there are too few rows",
    kinds=frozenset({"scan"}), applies=_applies, build=_build,
)  # fmt: skip
