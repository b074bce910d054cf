"""The schedules of scatter: ranges of rows have owners, which go through the indices in order.

So the result never depends on timing: sums add up in the order of the indices, and the last of several
stores wins. Few indices are walked by every owner; many are first sorted by owner, stably. Light items have
schedules of their own for some thousand indices, and for more. Sums and extremes of whole numbers are the
same in any order: where the language joins them in one step, every element has an item, and the last of
several stores is the one with the greatest number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

from ....dtypes.definition import bool_, int32, int64
from ...fusion.collapse_dims import collapse
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO, const
from ...ir.inline import ERRORS, Inliner
from ...ir.kernel_task import KernelTask, LaunchList
from ...ir.loop_ir import INDEX, Apply, Cast, Const, Expr, Load, Report, Select, Var
from ..pointwise.pointwise import lower_map
from ..sort.bucket_pass import BUCKETS, Read, Source, Target, chunks, distribute
from . import scatter_rank_gpu as ranked
from . import scatter_row_gpu as along
from . import scatter_sorted_gpu as segments

OWNERS = 64
FEW = 1024
ALL = 64
"""So many indices are best walked by every light item."""
WIDE, MORE = 32, 1 << 14
"""Light items side by side walk so many indices together: they read them once."""
AHEAD = 16
"""How many indices they read before they write."""
_Take = Callable[[Builder, Inliner, Expr, Expr, Expr], None]
"""What is written for an index that names a row: its number, the row and the column."""
MODES: Final = {"add": "add", "multiply": "multiply", "min": "minimum", "max": "maximum"}


def lower_scatter(job: KernelTask, steps: LaunchList) -> None:
    """Append the copy of ``x`` and the walk over the indices."""
    x, value, *indices = job.root.inputs
    op = MODES.get(job.root.attrs["mode"])
    if along.serves(job.root, steps.target):
        along.lower_along(job, steps, op)
        return
    lower_map(collapse(replace(job, root=x)), steps)
    if 0 in value.spec.shape:
        return
    rows = max(prod(x.spec.shape[: len(indices)]), 1)
    wide = max(prod(x.spec.shape[len(indices) :]), 1)
    light = not steps.target.row_per_task and bool(steps.target.subgroup_size) and wide >= WIDE
    count = prod(indices[0].spec.shape)
    small = not steps.target.row_per_task and max(rows, count) < segments.LIMIT
    if not steps.target.row_per_task and op is not None and (op, job.root.spec.dtype) in steps.target.atomics:
        _at_once(job, steps, op)
    elif small and op is None and count > ALL and ("maximum", int32) in steps.target.atomics:
        _by_last(job, steps, rows)
    elif light and small and ranked.LEAST <= count <= ranked.MOST:
        ranked.lower_ranked(job, steps, partial(_reported, job), op)
    elif small and count > FEW:
        segments.lower_segments(job, steps, partial(_reported, job), op, rows)
    elif count > (MORE if light else FEW) and rows > 1:
        _by_bucket(job, steps, rows)
    else:
        _by_all(job, steps, rows)


def _reported(job: KernelTask, b: Builder, pull: Inliner, at: Expr) -> tuple[Expr, Expr]:
    """Return the row of an index, and whether it exists; else it is reported."""
    row, exists, found, limits = _row(b, pull, job, ix.unflatten(at, pull.lengths(job.root.inputs[2])))
    _report(b, pull, found, limits, exists, None)
    return row, exists


def _at_once(job: KernelTask, steps: LaunchList, op: str) -> None:
    """Let an item for each element join it with what is there."""
    x, _, *indices = job.root.inputs
    count, wide = prod(indices[0].spec.shape), max(prod(x.spec.shape[len(indices) :]), 1)
    b = Builder(f"tb_scatter_{job.root.attrs['mode']}")
    pull, slots = job.inliner(b)
    walk, column, loops = _loops(b, count, wide, solo=False)
    at = ix.unflatten(walk, pull.lengths(indices[0]))
    row, exists, found, limits = _row(b, pull, job, at)
    _report(b, pull, found, limits, exists, None if column is None else ix.less(column, ONE))
    b.buffer("out", job.root.spec.dtype, writes=True)
    with b.when(exists), pull.scope():
        _write(b, pull, job, at, ZERO if column is None else column, row, wide, op)
    steps.add(b.finish(loops), {**slots, "out": job.out})


def _by_last(job: KernelTask, steps: LaunchList, rows: int) -> None:
    """Find the last index of each row that is named, and store the values of these."""
    x, _, *indices = job.root.inputs
    count, wide = prod(indices[0].spec.shape), max(prod(x.spec.shape[len(indices) :]), 1)
    last = steps.temporary(rows, int32)

    def launch(name: str, wide: int, take: _Take, **out: int) -> None:
        """Append the launch of an item for each index, and column; ``take`` gets the index and its row."""
        b = Builder(f"tb_scatter_{name}")
        pull, slots = job.inliner(b)
        walk, column, loops = _loops(b, count, wide, solo=False)
        number = b.let(ix.subtract(b.size("last", count - 1), walk), "number")
        row, exists, found, limits = _row(b, pull, job, ix.unflatten(number, pull.lengths(indices[0])))
        if name == "last":  # one kernel reports
            _report(b, pull, found, limits, exists, None)
        b.buffer("lasts", int32, writes=True)
        with b.when(exists), pull.scope():
            take(b, pull, number, row, ZERO if column is None else column)
        steps.add(b.finish(loops), {**slots, "lasts": last, **out})

    def name(b: Builder, _: Inliner, number: Expr, row: Expr, column: Expr) -> None:
        b.store("lasts", row, Const(-1, int32))

    def find(b: Builder, _: Inliner, number: Expr, row: Expr, column: Expr) -> None:
        # The greatest numbers come first: where all name one row, hardly any of the others write there.
        own = b.let(Cast(number, int32), "own")
        with b.when(ix.less(Load("lasts", row, int32), own)):
            b.store("lasts", row, own, combine="maximum")

    def put(b: Builder, pull: Inliner, number: Expr, row: Expr, column: Expr) -> None:
        with b.when(Apply("equal", (Load("lasts", row, int32), Cast(number, int32)), bool_)):
            _write(b, pull, job, ix.unflatten(number, pull.lengths(indices[0])), column, row, wide)

    if rows > 2 * count:
        launch("named", 1, name)
    else:  # all rows sooner than those that are named
        b, item = Builder("tb_scatter_rows"), Var("i0", INDEX)
        b.store(b.buffer("lasts", int32, writes=True), item, Const(-1, int32))
        steps.add(b.finish([(item, b.size("rows", rows), rows)]), {"lasts": last})
    launch("last", 1, find)
    launch("set", wide, put, out=job.out)


def _by_all(job: KernelTask, steps: LaunchList, rows: int) -> None:
    """Let every owner walk all indices, and store where a row is its own."""
    x, _, *indices = job.root.inputs
    wide = max(prod(x.spec.shape[len(indices) :]), 1)
    solo = steps.target.row_per_task
    owners = max(1, min(OWNERS if solo else -(-steps.target.work_items_to_fill // wide), OWNERS, rows))
    b = Builder(f"tb_scatter_{job.root.attrs['mode']}")
    pull, slots = job.inliner(b)
    owner, column, loops = _loops(b, owners, wide, solo)
    per = b.size("per", -(-rows // owners))
    low = b.let(ix.multiply(owner, per), "low")
    high = b.let(ix.add(low, per), "high")
    shape = pull.lengths(indices[0])
    first = ix.both([ix.less(var, ONE) for var, _, _ in loops]) if loops else None
    total = b.size("count", prod(indices[0].spec.shape))

    def take(places: Sequence[Expr]) -> None:
        """Look at indices side by side, then write in their order: reading waits for no writing."""
        with pull.scope():
            seen = []
            for walk in places:
                at = ix.unflatten(walk, shape)
                seen.append((at, *_row(b, pull, job, at)))
            for at, row, exists, found, limits in seen:
                _report(b, pull, found, limits, exists, first)
                inside = [exists, Apply("less_equal", (low, row), bool_), ix.less(row, high)]
                with b.when(ix.both(inside)), pull.scope():
                    _write_row(b, pull, job, at, row, column, wide)

    even: Expr = ZERO
    if steps.target.subgroup_size and prod(indices[0].spec.shape) >= AHEAD:
        even = b.let(ix.multiply(ix.quotient(total, const(AHEAD)), const(AHEAD)), "even")
        with b.loop(ZERO, even, step=AHEAD) as walk:
            take([b.let(ix.add(walk, const(k)), "walk") for k in range(AHEAD)])
    with b.loop(even, total) as walk:
        take([walk])
    steps.add(b.finish(loops, solo=solo), {**slots, "out": job.out})


def _by_bucket(job: KernelTask, steps: LaunchList, rows: int) -> None:
    """Bring the indices' numbers into the order of their rows' owners, then let these walk their own."""
    x, _, *indices = job.root.inputs
    count = prod(indices[0].spec.shape)
    per = -(-rows // BUCKETS)
    owners = -(-rows // per)
    wide = max(prod(x.spec.shape[len(indices) :]), 1)
    solo = steps.target.row_per_task
    pulls: list[Inliner] = []

    def open_(b: Builder) -> tuple[Read, dict[str, int]]:
        pull, slots = job.inliner(b)
        pulls.append(pull)

        def read(_: Expr, at: Expr) -> tuple[Expr, ...]:
            with pull.scope():
                place = ix.unflatten(at, pull.lengths(indices[0]))
                row, exists, found, limits = _row(b, pull, job, place)
            if len(pulls) == 1:  # the first kernel alone reports
                _report(b, pull, found, limits, exists, None)
            return Cast(at, int64), Select(exists, row, ZERO, INDEX)

        return read, slots

    def bucket(b: Builder, element: tuple[Expr, ...]) -> Expr:
        return ix.quotient(element[1], b.size("per", per))

    order = steps.temporary(count, int64)
    source = Source(rows=1, length=count, open=open_, bucket=bucket)
    target = Target(part=0, dtype=int64, slot=order, place=lambda b, row, at: at)
    starts = distribute("tb_scatter", source, [target], steps, starts=True)
    b = Builder(f"tb_scatter_{job.root.attrs['mode']}_own")
    pull, slots = job.inliner(b)
    owner, column, loops = _loops(b, owners, wide, solo)
    pieces = b.size("chunks", chunks(1, count, steps))
    b.buffer("counts", INDEX)
    start = b.let(Load("counts", ix.multiply(owner, pieces), INDEX), "start")
    total = b.size("count", count)
    stop = b.let(total, "stop", mutable=True)
    with b.when(ix.less(ix.add(owner, ONE), b.size("owners", owners))):
        b.assign(stop, Load("counts", ix.multiply(ix.add(owner, ONE), pieces), INDEX))
    with b.loop(start, stop) as k, pull.scope():
        number = b.let(Cast(Load(b.buffer("order", int64), k, int64), INDEX), "number")
        at = ix.unflatten(number, pull.lengths(indices[0]))
        row, exists, _, _ = _row(b, pull, job, at)
        with b.when(exists):
            _write_row(b, pull, job, at, row, column, wide)
    named = {**slots, "out": job.out, "counts": starts, "order": order}
    steps.add(b.finish(loops, solo=solo), named)


def _loops(
    b: Builder, owners: int, wide: int, solo: bool
) -> tuple[Expr, Expr | None, list[tuple[Var, Expr, int]]]:
    """Return the owner, the column where items do not walk the whole row, and the loops over both."""
    owner, column = Var("i0", INDEX), Var("i1", INDEX)
    if solo or wide == 1:
        return owner, None, [(owner, b.size("owners", owners), owners)]
    return column, owner, [(owner, b.size("wide", wide), wide), (column, b.size("owners", owners), owners)]


def _row(
    b: Builder, pull: Inliner, job: KernelTask, at: tuple[Expr, ...]
) -> tuple[Expr, Expr, Sequence[Expr], Sequence[Expr]]:
    """Return the row that the indices at ``at`` name, whether it exists, the indices and their limits."""
    x, _, *indices = job.root.inputs
    limits = [pull.length(x, k) for k in range(len(indices))]
    found: list[Expr] = [b.let(Cast(pull.value(i, at), INDEX), "row") for i in indices]
    conditions: list[Expr] = []
    for row, limit in zip(found, limits, strict=True):
        conditions += [Apply("less_equal", (ZERO, row), bool_), ix.less(row, limit)]
    exists = b.let(ix.both(conditions), "ok")
    return b.let(ix.flatten(found, limits), "at"), exists, found, limits


def _report(
    b: Builder, pull: Inliner, found: Sequence[Expr], limits: Sequence[Expr], exists: Expr, first: Expr | None
) -> None:
    """Report indices that name no row; where ``first`` is given, only the item for which it holds does."""
    b.buffer(ERRORS, INDEX, writes=True)
    wrong: Expr = Apply("logical_not", (exists,), bool_)
    with b.when(wrong if first is None else ix.both([first, wrong])):
        for row, limit in zip(found, limits, strict=True):
            b.emit(Report(ERRORS, pull.code("scatter"), row, limit))


def _write_row(
    b: Builder,
    pull: Inliner,
    job: KernelTask,
    at: tuple[Expr, ...],
    row: Expr,
    column: Expr | None,
    wide: int,
) -> None:
    if column is not None or wide == 1:
        _write(b, pull, job, at, ZERO if column is None else column, row, wide)
        return
    with b.loop(ZERO, b.size("wide", wide)) as k, pull.scope():
        _write(b, pull, job, at, k, row, wide)


def _write(
    b: Builder, pull: Inliner, job: KernelTask, at: tuple[Expr, ...], column: Expr, row: Expr, wide: int,
    at_once: str = "",
) -> None:  # fmt: skip
    """Store one element, or combine it with what is there: column ``column`` of the row."""
    x, value, *indices = job.root.inputs
    dtype = job.root.spec.dtype
    b.buffer("out", dtype, writes=True)
    tail = ix.unflatten(column, [pull.length(x, k) for k in range(len(indices), len(x.spec.shape))])
    target = b.let(ix.add(ix.multiply(row, b.size("wide", wide)), column), "to")
    new = pull.value(value, (*at, *tail))
    if at_once:
        b.store("out", target, new, combine=at_once)
        return
    op = MODES.get(job.root.attrs["mode"])
    b.store("out", target, new if op is None else Apply(op, (Load("out", target, dtype), new), dtype))
