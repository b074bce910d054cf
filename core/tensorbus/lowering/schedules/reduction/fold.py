"""The loops of a reduction, in one task or work-item or by workgroups, and those that join its chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from ....dtypes.definition import int64
from ...ir import index_expr as ix
from ...ir.builder import Builder, Launch
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import parallel_loops
from ...ir.loop_ir import INDEX, Cast, Const, Expr, Kind, Var
from ...target import Target
from ..pointwise.vectorize import PLAIN, Vectors
from ..workgroup import Workgroup
from .blocked_sum import Nest, Span, block_of, registers
from .chunks import Axis, Chunks
from .reducer import ProductReducer, Reducer, State
from .reduction_loop import Element, reduce_in_lanes, reduce_in_vectors

Finish = Callable[[tuple[Expr, ...], State], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWorkgroup:
    """The work of a result's last workgroup: ``part`` is what a chunk has come to, by its number and place.

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

    ``finish`` gets the kept indices, the chunk's number first where there are chunks. ``lanes`` > 1 takes the
    last axis that many elements at a time, in ``vectors`` where their ops are all that this takes.
    ``ordered`` says that elements are numbered in the order in which they are read. ``unrolled`` loops have
    a constant length.
    """
    kept_axes = [k for k, a in enumerate(axes) if not a.reduced]
    parallel = [(axes[k].length, axes[k].value) for k in kept_axes]
    interleaved = chunks is not None and chunks.interleaved
    if chunks is not None:
        parallel.insert(len(parallel) if interleaved else 0, (b.size("chunks", chunks.count), chunks.count))
    outer, loops = parallel_loops(b, [n for n, _ in parallel], [v for _, v in parallel])
    if interleaved:
        outer = (outer[-1], *outer[:-1])
    index: list[Expr] = [ZERO] * len(axes)
    for k, i in zip(kept_axes, outer[-len(kept_axes) :] if kept_axes else (), strict=True):
        index[k] = i
    over = [k for k, a in enumerate(axes) if a.reduced]

    def bounds(k: int) -> Span:
        if chunks is None or chunks.axis != k:
            return Span(ZERO, const(axes[k].value) if unrolled else axes[k].length, axes[k].value)
        if chunks.interleaved:
            count = b.size("chunks", chunks.count)
            left = ix.add(ix.subtract(axes[k].length, outer[0]), ix.subtract(count, ONE))
            return Span(ZERO, b.let(ix.quotient(left, count), "stop"), chunks.size)
        size = b.size("chunk", chunks.size)
        start = b.let(ix.multiply(outer[0], size), "start")
        return Span(start, b.let(ix.minimum(ix.add(start, size), axes[k].length), "stop"), chunks.size)

    bound = {k: bounds(k) for k in over}
    block = block_of(reducer, target.heuristics)
    if lanes > 1:
        states = reduce_in_vectors(b, reducer, index, over, bound, element, vectors, block)
        seldom = chunks is not None and chunks.axis == over[-1]  # the last of many chunks has any
        rest: Kind = "rest" if seldom else "serial"
        limits = target.heuristics
        states = states or reduce_in_lanes(b, reducer, index, over, bound, element, lanes, limits, rest=rest)
        finish(tuple(outer), states)
        return loops
    ordered = ordered and reducer.is_arg_reduction and not (chunks is not None and chunks.interleaved)
    numbered = reducer.over(axes[over[0]].value) if ordered and isinstance(reducer, Reducer) else reducer
    first = numbered.first(bound[over[0]].start) if ordered else reducer.start()
    state = tuple(b.let(e, "acc", mutable=True) for e in first)
    sums = registers(b, reducer, state, 0 if unrolled else block)

    def follow(state: tuple[Var, ...]) -> State:
        """Return the state with one more element."""
        if not ordered:
            return reducer.combine(b, state, element(tuple(index)))
        value = element(tuple(index))[0]
        return numbered.step(b, state, (value, Cast(index[over[0]], numbered.dtypes[-1])))

    def put(k: int, i: Expr) -> None:
        index[k] = i
        if chunks is not None and chunks.interleaved and chunks.axis == k:
            index[k] = ix.add(ix.multiply(i, b.size("chunks", chunks.count)), outer[0])

    def one() -> None:
        for var, e in zip(sums.state, follow(sums.state), strict=True):
            b.assign(var, e)

    loops_over = [Nest(bound[k], partial(put, k)) for k in over]
    sums.nest(loops_over, one, 1, "unroll" if unrolled else "serial")
    finish(tuple(outer), (state[0], Cast(state[1], int64)) if ordered else state)
    return loops


def is_joined_by_workgroups(target: Target, count: int, outputs: int) -> bool:
    """Return whether workgroups join ``count`` parts of each output: else few work-items read them."""
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
    over, kept_axes = [k for k, a in enumerate(axes) if a.reduced], [a for a in axes if not a.reduced]
    along, total = [axes[k].length for k in over], prod(axes[k].value for k in over)
    stop = along[0] if len(along) == 1 else b.size("row", total)
    stop = b.size("vectors", total // lanes) if lanes > 1 else stop
    length = chunks.size if chunks is not None else total
    items = max(limits.row_min_length, min(limits.workgroup_max, 1 << (length // 4).bit_length()))
    workgroup = Workgroup.of(b, items, target)
    lengths, values = [a.length for a in kept_axes], [a.value for a in kept_axes]
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
        indices = [
            i if isinstance(i, Var | Const) else b.let(i, "i") for i in ix.unflatten(element_offset, along)
        ]
        return element((*indices, *inner) if over[0] == 0 else (*inner, *indices))

    block = block_of(reducer, limits)
    state = workgroup.reduce(reducer, bounds, at, block, ordered, lanes)
    with b.when(ix.less(workgroup.item, ONE)):
        finish(index, state)
    if chunks is not None and whole is not None:
        count = b.size("chunks", chunks.count)
        with b.when(b.arrive(ix.flatten(inner, [a.length for a in kept_axes]), count)):
            all_of = workgroup.reduce(
                reducer, Span(ZERO, count, chunks.count), lambda chunk: whole.part((chunk, *inner)), block
            )
            with b.when(ix.less(workgroup.item, ONE)):
                whole.finish(inner, all_of)
    return workgroup.finished(b.finish([workgroup.loop, (row, b.size("rows", rows), rows)]))
