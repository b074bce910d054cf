"""Scans along the last axis on GPUs: a workgroup takes a row, a tile at a time.

Each work-item scans a few neighbouring elements by itself, the workgroup scans what these come to, and all
add what stands before. Long rows are cut into chunks, whose totals are known before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from math import prod
from typing import Final

from ....backend_interface.graph import Node
from ....tracing.sym_int import known_divisor
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import KernelTask, LaunchList
from ...ir.loop_ir import INDEX, Array, Barrier, Cast, Expr, Load, Var
from ...op_sets import SCANS
from ...target import Target
from ..pointwise.vector_access import emit_vector, vector_width
from ..reduction.blocked_sum import Base, Span, block_of, running
from ..reduction.chunks import Chunks
from ..reduction.reducer import Reducer, State
from ..schedule import Schedule, ScheduleRequest, Verdict
from ..workgroup import Workgroup, workgroup_size


def lower_workgroup_scan(task: KernelTask, steps: LaunchList, reducer: Reducer) -> None:
    """Append the launches: one, and two before it where rows are cut into chunks."""
    shape = task.root.inputs[0].spec.shape
    chunks, totals = _chunks(steps.target, prod(shape[:-1]), shape[-1]), 0
    if chunks is not None:
        totals = steps.temporary(chunks.count * prod(shape[:-1]), reducer.dtypes[0])
        _totals(task, steps, reducer, chunks, totals)
        _scan_totals(steps, reducer, (chunks.count, prod(shape[:-1])), totals)
    _tiles(task, steps, reducer, chunks, totals)


def _chunks(target: Target, rows: int, length: int) -> Chunks | None:
    """Return how rows are cut that are few and long; chunks are whole tiles."""
    limits = target.heuristics
    tiles = -(-length // (limits.scan_workgroup * limits.scan_max_elements))
    if rows >= target.tasks_to_fill // limits.scan_busy_rows_share or tiles < limits.scan_chunk_min_tiles:
        return None
    count = min(target.tasks_to_fill // limits.scan_busy_chunks_share // rows, tiles // 2)
    size = -(-tiles // max(count, 1)) * limits.scan_workgroup * limits.scan_max_elements
    return Chunks(axis=-1, size=size, count=-(-length // size)) if size < length else None


def _piece(
    b: Builder, row: Expr, chunks: Chunks, shape: tuple[int, ...], lengths: Sequence[Expr]
) -> tuple[Expr, Expr, Expr]:
    """Return the row that a workgroup has a chunk of, and where the chunk starts and stops."""
    width, size = b.size("width", prod(shape[:-1])), b.size("chunk", chunks.size)
    number = b.let(ix.modulo(row, width), "row")
    start = b.let(ix.multiply(ix.quotient(row, width), size), "start")
    return number, start, b.let(ix.minimum(ix.add(start, size), lengths[-1]), "stop")


def _totals(task: KernelTask, steps: LaunchList, reducer: Reducer, chunks: Chunks, totals: int) -> None:
    """Append what each chunk comes to."""
    limits = steps.target.heuristics
    operand = task.root.inputs[0]
    shape = operand.spec.shape
    b = Builder(f"tb_{task.root.op}_totals")
    inliner, slots = task.inliner(b)
    lengths = [inliner.length(operand, k) for k in range(len(shape))]
    workgroup = Workgroup.of(b, limits.scan_workgroup, steps.target)
    row, rows = Var("i1", INDEX), chunks.count * prod(shape[:-1])
    number, start, stop = _piece(b, row, chunks, shape, lengths)
    outer = ix.unflatten(number, lengths[:-1])

    def element(k: Expr) -> State:
        with inliner.scope():
            return reducer.element(inliner.value(operand, (*outer, k)), ZERO)

    block = block_of(reducer, limits)
    state = workgroup.reduce(reducer, Span(start, stop, chunks.size), element, block)
    with b.when(ix.less(workgroup.item, ONE)):
        b.store(b.buffer("totals", reducer.dtypes[0], writes=True), row, state[0])
    launch = b.finish([workgroup.loop, (row, b.size("rows", rows), rows)])
    steps.add(workgroup.finished(launch), {**slots, "totals": totals})


def _scan_totals(steps: LaunchList, reducer: Reducer, shape: tuple[int, int], totals: int) -> None:
    """Append what turns the totals of each row's chunks, in place, into those of all chunks before."""
    limits = steps.target.heuristics
    b, (count, wide), dtype = Builder(f"tb_{reducer.op}_befores"), shape, reducer.dtypes[0]
    size = workgroup_size(count, limits.scan_workgroup)
    workgroup = Workgroup.of(b, size, steps.target)
    row = Var("i1", INDEX)
    limit, width = b.size("chunks", count), b.size("width", wide)
    b.buffer("totals", dtype, writes=True)

    def tile(turn: Expr, state: tuple[Var, ...], base: Base) -> None:
        chunk = b.let(ix.add(ix.multiply(turn, const(workgroup.size)), workgroup.item), "chunk")
        at = b.let(ix.add(ix.multiply(chunk, width), row), "at")
        total = b.let(reducer.start()[0], "acc", mutable=True)
        with b.when(ix.less(chunk, limit)):
            b.assign(total, Load("totals", at, dtype))
        (own,), last = workgroup.exclusive_scan(reducer, (total,), b.all(base()))
        with b.when(ix.less(chunk, limit)):
            b.store("totals", at, own)
        b.assign(state[0], reducer.combine(b, state, last)[0])
        b.emit(Barrier())  # before the next tile's totals come

    tiles = -(-count // workgroup.size)
    block = block_of(reducer, limits)
    running(
        b, reducer, reducer.start(), Span(ZERO, b.size("tiles", tiles), tiles), block, tile, prefix="tile"
    )
    steps.add(workgroup.finished(b.finish([workgroup.loop, (row, width, wide)])), {"totals": totals})


def _tiles(task: KernelTask, steps: LaunchList, reducer: Reducer, chunks: Chunks | None, totals: int) -> None:
    """Append the scan of each row, or chunk of one. ``totals`` is the slot of what stands before each."""
    limits = steps.target.heuristics
    root, operand = task.root, task.root.inputs[0]
    shape, dtype = operand.spec.shape, reducer.dtypes[0]
    b = Builder(f"tb_{root.op}_workgroup")
    inliner, slots = task.inliner(b)
    lengths = [inliner.length(operand, k) for k in range(len(shape))]
    length = chunks.size if chunks is not None else shape[-1]
    subgroup, stored = steps.target.subgroup_size, [operand.spec.dtype, root.spec.dtype]
    whole = (
        min(limits.scan_max_elements, vector_width(steps.target, known_divisor(shape[-1], length), stored))
        if subgroup
        else 1
    )
    each = max(limits.scan_elements, whole)
    size = workgroup_size(-(-length // each), limits.scan_workgroup)
    workgroup = Workgroup.of(b, size, steps.target)
    row, rows = Var("i1", INDEX), prod(shape[:-1]) * (chunks.count if chunks is not None else 1)
    start: Expr = ZERO
    stop: Expr = lengths[-1]
    first = reducer.start()
    number: Expr = row
    if chunks is not None:
        number, start, stop = _piece(b, row, chunks, shape, lengths)
        slots["totals"] = totals
        first = (Load(b.buffer("totals", dtype), row, dtype),)
    outer = ix.unflatten(number, lengths[:-1])
    out = b.buffer("out", root.spec.dtype, writes=True)
    own = b.fresh("own")

    def scan_tile(turn: Expr, state: tuple[Var, ...], base: Base) -> None:
        tile = ix.add(start, ix.multiply(turn, const(workgroup.size * each)))
        total = b.let(reducer.start()[0], "acc", mutable=True)
        begin = b.let(ix.add(tile, ix.multiply(workgroup.item, const(each))), "begin")

        def read(first: Expr, u: Expr) -> None:
            u = ix.add(first, u)
            at = b.let(ix.add(begin, u), "at")
            with b.when(ix.less(at, stop)) if whole == 1 else nullcontext(), inliner.scope():
                state = reducer.element(inliner.value(operand, (*outer, at)), ZERO)
                b.assign(total, reducer.combine(b, (total,), state)[0])
            b.store(own, u, total)

        def write(first: Expr, u: Expr) -> None:
            u = ix.add(first, u)
            at = b.let(ix.add(begin, u), "at")
            with b.when(ix.less(at, stop)) if whole == 1 else nullcontext():
                combined = reducer.combine(b, (above,), (Load(own, u, dtype),))[0]
                value = combined if root.spec.dtype is dtype else Cast(combined, root.spec.dtype)
                b.store(out, ix.flatten((*outer, at), lengths), value)

        def all_of(one: Callable[[Expr, Expr], None]) -> None:
            if whole == 1:
                with b.loop(ZERO, const(each), kind="unroll", prefix="u") as u:
                    one(ZERO, u)
                return
            for k in range(0, each, whole):
                with b.when(ix.less(ix.add(begin, const(k)), stop)):
                    emit_vector(b, whole, partial(one, const(k)))

        all_of(read)
        (above,), last = workgroup.exclusive_scan(reducer, (total,), b.all(base()))
        all_of(write)
        b.assign(state[0], reducer.combine(b, state, last)[0])
        b.emit(Barrier())  # before the next tile's totals come

    tiles = -(-length // (workgroup.size * each))
    block = block_of(reducer, limits)
    running(b, reducer, first, Span(ZERO, b.size("tiles", tiles), tiles), block, scan_tile, prefix="tile")
    launch = b.finish([workgroup.loop, (row, b.size("rows", rows), rows)])
    steps.add(workgroup.finished(launch, [Array(own, dtype, each)]), {**slots, "out": task.out})


def serves(root: Node, target: Target) -> Verdict:
    """Return whether a scan is one for workgroups."""
    limits = target.heuristics
    shape, axis = root.inputs[0].spec.shape, root.attrs["axis"]
    if target.row_per_task:
        return "rows are scanned by tasks"
    if 0 in shape or axis != len(shape) - 1:
        return "the scan is not along the last axis, or of nothing"
    return (
        True
        if shape[axis] >= limits.scan_workgroup_min_length
        else f"rows are shorter than {limits.scan_workgroup_min_length}"
    )


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    return serves(request.collapsed.root, target)


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    operand = request.root.inputs[0]
    lower_workgroup_scan(request.collapsed, launches, Reducer.of(SCANS[request.root.op], operand.spec.dtype))


WORKGROUP_SCAN: Final = Schedule(
    name="scan by workgroups",
    about="a workgroup scans a row, or a chunk of one, a tile at a time",
    kinds=frozenset({"scan"}), applies=_applies, build=_build,
)  # fmt: skip
