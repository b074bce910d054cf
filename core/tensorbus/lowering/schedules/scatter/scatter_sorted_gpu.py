"""Segmented scatter on GPUs: many indices are sorted by their rows, and runs of one row added up.

A long run is cut into pieces, each of which one work-item adds up in the order of the indices; the first
work-item of the run then adds the pieces, in order. So one row may have all indices, and the sum is the same
each time.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ....dtypes.definition import bool_, int32, uint32
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import KernelTask, LaunchList, parallel_loops
from ...ir.loop_ir import INDEX, Apply, Cast, Expr, Load, Select, Var
from ..sort import radix_pass_gpu as counting
from ..sort.bucket_pass import Destination, Read, Source, digit
from .scatter_rank_gpu import Row, add_up
from .sizes import Sizes, element_place


def lower_segmented_scatter(
    task: KernelTask, steps: LaunchList, row: Row, op: str | None, limit: int
) -> None:
    """Append the launches of a scatter onto what is stored already; without ``op`` the last value stays.

    ``row`` emits what reads an index; there are ``limit`` rows.
    """
    limits = steps.target.heuristics
    count = prod(task.root.inputs[2].spec.shape)
    rows, order = _sorted(task, steps, row, limit, count)
    stops = steps.temporary(limit, int32)
    _stops(steps, rows, stops, limit, count)
    wide = Sizes.of(task.root).wide
    pieces = (
        steps.temporary(-(-count // limits.scatter_segment_piece) * wide, task.root.spec.dtype)
        if count > limits.scatter_segment_piece
        else -1
    )
    slots = {"rows": rows, "order": order, "stops": stops, "pieces": pieces}
    _add(task, steps, op, slots, limit, count)
    if count > limits.scatter_segment_piece:
        _join(task, steps, op, slots, limit, count)


def _sorted(task: KernelTask, steps: LaunchList, row: Row, limit: int, count: int) -> tuple[int, int]:
    """Append what sorts the indices by row; return the slots of the rows and of the indices' numbers.

    An index that names no row has ``limit`` for one.
    """

    def indices(b: Builder) -> tuple[Read, dict[str, int]]:
        inliner, slots = task.inliner(b)

        def read(_: Expr, at: Expr) -> tuple[Expr, ...]:
            number, exists = row(b, inliner, at)
            return Cast(Select(exists, number, b.size("limit", limit), INDEX), int32), Cast(at, int32)

        return read, slots

    def moved(slots: dict[str, int]) -> Callable[[Builder], tuple[Read, dict[str, int]]]:
        def open_(b: Builder) -> tuple[Read, dict[str, int]]:
            b.buffer("rows", int32)
            b.buffer("order", int32)
            return lambda _, at: (Load("rows", at, int32), Load("order", at, int32)), slots

        return open_

    def bucket_at(shift: int) -> Callable[[Builder, tuple[Expr, ...]], Expr]:
        def bucket(b: Builder, element: tuple[Expr, ...]) -> Expr:
            return digit(Cast(element[0], uint32), b.param("shift", uint32, shift), counting.BITS)

        return bucket

    open_: Callable[[Builder], tuple[Read, dict[str, int]]] = indices
    held: dict[str, int] = {}
    for shift in range(0, limit.bit_length(), counting.BITS):
        held = {name: steps.temporary(count, int32) for name in ("rows", "order")}
        targets = [
            Destination(part=k, dtype=int32, slot=slot, place=lambda b, row, at: at)
            for k, slot in enumerate(held.values())
        ]
        source = Source(rows=1, length=count, open=open_, bucket=bucket_at(shift))
        counting.lower_pass("tb_scatter", source, targets, steps)
        open_ = moved(held)
    return held["rows"], held["order"]


def _stops(steps: LaunchList, rows: int, stops: int, limit: int, count: int) -> None:
    """Append what says of each row that is named where its run ends."""
    b = Builder("tb_scatter_stops")
    item, total = Var("i0", INDEX), b.size("count", count)
    b.buffer("rows", int32)
    b.buffer("stops", int32, writes=True)
    row = b.let(Load("rows", item, int32), "row")
    after = b.let(ix.add(item, ONE), "after")
    beside = Load("rows", ix.minimum(after, ix.subtract(total, ONE)), int32)
    goes_on = b.let(ix.both([ix.less(after, total), Apply("equal", (beside, row), bool_)]), "goes_on")
    place = b.let(Cast(row, INDEX), "place")
    ends = Apply("logical_not", (goes_on,), bool_)
    with b.when(ix.both([ix.less(place, b.size("limit", limit)), ends])):
        b.store("stops", place, Cast(after, int32))
    steps.add(b.finish([(item, total, count)]), {"rows": rows, "stops": stops})


def _begin(b: Builder, item: Expr, limit: int) -> tuple[Expr, Expr, Expr]:
    """Return the row of a work-item, whether there is one, and whether its run begins here."""
    b.buffer("rows", int32)
    row = b.let(Load("rows", item, int32), "row")
    before = Load("rows", Apply("maximum", (ix.subtract(item, ONE), ZERO), INDEX), int32)
    goes_on = ix.both([ix.less(ZERO, item), Apply("equal", (before, row), bool_)])
    leads = b.let(Apply("logical_not", (goes_on,), bool_), "leads")
    place = b.let(Cast(row, INDEX), "place")
    return place, ix.less(place, b.size("limit", limit)), leads


def _add(
    task: KernelTask, steps: LaunchList, op: str | None, slots: dict[str, int], limit: int, count: int
) -> None:
    """Append what adds up the pieces: the first of each run onto its row, the others apart."""
    limits = steps.target.heuristics
    _, value, *indices = task.root.inputs
    dtype, wide = task.root.spec.dtype, Sizes.of(task.root).wide
    b = Builder(f"tb_scatter_{task.root.attrs['mode']}_pieces")
    inliner, read = task.inliner(b)
    (item, column), loops = parallel_loops(b, [b.size("count", count), b.size("wide", wide)], [count, wide])
    b.buffer("order", int32)
    b.buffer("stops", int32)
    b.buffer("out", dtype, writes=True)
    row, exists, leads = _begin(b, item, limit)
    cut = Apply("equal", (ix.modulo(item, const(limits.scatter_segment_piece)), ZERO), bool_)
    with b.when(ix.both([exists, Apply("logical_or", (leads, cut), bool_)])):
        end = ix.multiply(
            ix.add(ix.quotient(item, const(limits.scatter_segment_piece)), ONE),
            const(limits.scatter_segment_piece),
        )
        stop = b.let(ix.minimum(Cast(Load("stops", row, int32), INDEX), end), "stop")
        tail, to = element_place(b, task, inliner, row, column)
        with inliner.scope():
            number = b.let(Cast(Load("order", item, int32), INDEX), "at")
            first = inliner.value(value, (*ix.unflatten(number, inliner.lengths(indices[0])), *tail))
            own = b.let(first if op is None else Apply(op, (Load("out", to, dtype), first), dtype), "own")
            total = b.let(Select(leads, own, first, dtype), "total", mutable=True)
        add_up(b, task, inliner, total, tail, (ix.add(item, ONE), stop), op, steps.target)
        with b.when(leads):
            b.store("out", to, total)
        if count > limits.scatter_segment_piece:
            b.buffer("pieces", dtype, writes=True)
            with b.when(Apply("logical_not", (leads,), bool_)):
                piece = ix.quotient(item, const(limits.scatter_segment_piece))
                b.store("pieces", ix.add(ix.multiply(piece, b.size("wide", wide)), column), total)
    used = {name: slot for name, slot in slots.items() if name in b.buffers}
    steps.add(b.finish(loops), {**read, **used, "out": task.out})


def _join(
    task: KernelTask, steps: LaunchList, op: str | None, slots: dict[str, int], limit: int, count: int
) -> None:
    """Append what adds the other pieces of long runs to their rows."""
    limits = steps.target.heuristics
    dtype = task.root.spec.dtype
    wide = Sizes.of(task.root).wide
    b = Builder(f"tb_scatter_{task.root.attrs['mode']}_joined")
    (item, column), loops = parallel_loops(b, [b.size("count", count), b.size("wide", wide)], [count, wide])
    b.buffer("stops", int32)
    b.buffer("pieces", dtype)
    b.buffer("out", dtype, writes=True)
    row, exists, leads = _begin(b, item, limit)
    with b.when(ix.both([exists, leads])):
        start = b.let(ix.add(ix.quotient(item, const(limits.scatter_segment_piece)), ONE), "start")
        past = ix.subtract(Cast(Load("stops", row, int32), INDEX), ONE)
        stop = b.let(ix.add(ix.quotient(past, const(limits.scatter_segment_piece)), ONE), "stop")
        with b.when(ix.less(start, stop)):
            to = b.let(ix.add(ix.multiply(row, b.size("wide", wide)), column), "to")
            total = b.let(Load("out", to, dtype), "total", mutable=True)
            with b.loop(start, stop) as k:
                piece = Load("pieces", ix.add(ix.multiply(k, b.size("wide", wide)), column), dtype)
                b.assign(total, piece if op is None else Apply(op, (total, piece), dtype))
            b.store("out", to, total)
    used = {name: slot for name, slot in slots.items() if name in b.buffers}
    steps.add(b.finish(loops), {**used, "out": task.out})
