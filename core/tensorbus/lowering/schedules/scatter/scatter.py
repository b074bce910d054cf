"""Scatters: ranges of rows have owners, which go through the indices in order.

So the result never depends on timing: sums add up in the order of the indices, and the last of several
stores wins. Few indices are read by every owner; many are first sorted by owner, stably. Work-items have
schedules of their own for some thousand indices, and for more. Sums and extremes of whole numbers are the
same in any order: where the language joins them in one step, every element has a work-item, and the last of
several stores is the one with the greatest number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from ....dtypes.definition import bool_, int32, int64
from ...fusion.collapse_dims import collapse
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO, const
from ...ir.inline import ERRORS, Inliner
from ...ir.kernel_task import KernelTask, LaunchList
from ...ir.loop_ir import INDEX, Apply, Cast, Const, Expr, Load, Report, Select, Var
from ...target import Target
from ..pointwise.pointwise import lower_map
from ..schedule import Schedule, ScheduleRequest, Verdict
from ..sort.bucket_pass import BUCKETS, Destination, Read, Source, chunks, distribute_with_starts
from . import scatter_rank_gpu as ranked
from . import scatter_sorted_gpu as segments
from .modes import MODES
from .sizes import Sizes, element_place

_Take = Callable[[Builder, Inliner, Expr, Expr, Expr], None]
"""What is written for an index that names a row: its number, the row and the column."""


def _copies(request: ScheduleRequest, target: Target) -> Verdict:
    return True if 0 in request.root.inputs[1].spec.shape else "there are values"


def _adds_at_once(request: ScheduleRequest, target: Target) -> Verdict:
    sizes, dtype = Sizes.of(request.root), request.root.spec.dtype
    if target.row_per_task:
        return "it is for work-items"
    known = sizes.op is not None and (sizes.op, dtype) in target.atomics
    return True if known else f"no atomic joins values of {dtype} in this mode in any order"


def _finds_last(request: ScheduleRequest, target: Target) -> Verdict:
    limits = target.heuristics
    sizes = Sizes.of(request.root)
    if sizes.op is not None:
        return "values join with what is there"
    if sizes.count <= limits.scatter_read_by_all:
        return f"there are no more than {limits.scatter_read_by_all} indices"
    return sizes.few(target) if ("maximum", int32) in target.atomics else "no atomic finds the greatest int32"


def _ranks(request: ScheduleRequest, target: Target) -> Verdict:
    limits = target.heuristics
    sizes = Sizes.of(request.root)
    if not sizes.side_by_side(target):
        return f"work-items have no subgroups, or rows are narrower than {limits.scatter_wide_row}"
    if not limits.scatter_rank_min_indices <= sizes.count <= limits.scatter_rank_max_indices:
        return f"there are not {limits.scatter_rank_min_indices} to {limits.scatter_rank_max_indices} indices"
    return sizes.few(target)


def _sorts(request: ScheduleRequest, target: Target) -> Verdict:
    limits = target.heuristics
    sizes = Sizes.of(request.root)
    return (
        sizes.few(target)
        if sizes.count > limits.scatter_few_indices
        else f"there are no more than {limits.scatter_few_indices} indices"
    )


def _fills_buckets(request: ScheduleRequest, target: Target) -> Verdict:
    limits = target.heuristics
    sizes = Sizes.of(request.root)
    most = (
        limits.scatter_few_indices_of_wide_rows if sizes.side_by_side(target) else limits.scatter_few_indices
    )
    if sizes.count <= most:
        return f"there are no more than {most} indices"
    return True if sizes.rows > 1 else "there is one row"


def _always(request: ScheduleRequest, target: Target) -> Verdict:
    return True


def _build_copy(request: ScheduleRequest, launches: LaunchList) -> None:
    task = request.task
    lower_map(collapse(replace(task, root=task.root.inputs[0])), launches)


_Write = Callable[[KernelTask, LaunchList, Sizes], None]


def _onto_copy(write: _Write) -> Callable[[ScheduleRequest, LaunchList], None]:
    """Return what appends the copy of ``x``, and then what ``write`` writes onto it."""

    def build(request: ScheduleRequest, launches: LaunchList) -> None:
        _build_copy(request, launches)
        write(request.task, launches, Sizes.of(request.task.root))

    return build


def _reported(task: KernelTask, b: Builder, inliner: Inliner, at: Expr) -> tuple[Expr, Expr]:
    """Return the row of an index, and whether it exists; else it is reported."""
    row, exists, rows, limits = _row(b, inliner, task, ix.unflatten(at, inliner.lengths(task.root.inputs[2])))
    _report(b, inliner, rows, limits, exists, None)
    return row, exists


def _at_once(task: KernelTask, steps: LaunchList, sizes: Sizes) -> None:
    """Let a work-item for each element join it with what is there."""
    op, count, wide = sizes.op or "", sizes.count, sizes.wide
    _, _, *indices = task.root.inputs
    b = Builder(f"tb_scatter_{task.root.attrs['mode']}")
    inliner, slots = task.inliner(b)
    position, column, loops = _loops(b, count, wide, per_task=False)
    at = ix.unflatten(position, inliner.lengths(indices[0]))
    row, exists, rows, limits = _row(b, inliner, task, at)
    _report(b, inliner, rows, limits, exists, None if column is None else ix.less(column, ONE))
    b.buffer("out", task.root.spec.dtype, writes=True)
    with b.when(exists), inliner.scope():
        _write(b, inliner, task, at, ZERO if column is None else column, row, op)
    steps.add(b.finish(loops), {**slots, "out": task.out})


def _by_last(task: KernelTask, steps: LaunchList, sizes: Sizes) -> None:
    """Find the last index of each row that is named, and store the values of these."""
    rows, count, wide = sizes.rows, sizes.count, sizes.wide
    _, _, *indices = task.root.inputs
    last = steps.temporary(rows, int32)

    def launch(name: str, wide: int, take: _Take, **out: int) -> None:
        """Append the launch of a work-item for each index and column; ``take`` gets the index and its row."""
        b = Builder(f"tb_scatter_{name}")
        inliner, slots = task.inliner(b)
        position, column, loops = _loops(b, count, wide, per_task=False)
        number = b.let(ix.subtract(b.size("last", count - 1), position), "number")
        row, exists, rows, limits = _row(b, inliner, task, ix.unflatten(number, inliner.lengths(indices[0])))
        if name == "last":  # one kernel reports
            _report(b, inliner, rows, limits, exists, None)
        b.buffer("lasts", int32, writes=True)
        with b.when(exists), inliner.scope():
            take(b, inliner, number, row, ZERO if column is None else column)
        steps.add(b.finish(loops), {**slots, "lasts": last, **out})

    def name(b: Builder, _: Inliner, number: Expr, row: Expr, column: Expr) -> None:
        b.store("lasts", row, Const(-1, int32))

    def find(b: Builder, _: Inliner, number: Expr, row: Expr, column: Expr) -> None:
        # The greatest numbers come first: where all name one row, hardly any of the others write there.
        own = b.let(Cast(number, int32), "own")
        with b.when(ix.less(Load("lasts", row, int32), own)):
            b.store("lasts", row, own, combine="maximum")

    def put(b: Builder, inliner: Inliner, number: Expr, row: Expr, column: Expr) -> None:
        with b.when(Apply("equal", (Load("lasts", row, int32), Cast(number, int32)), bool_)):
            _write(b, inliner, task, ix.unflatten(number, inliner.lengths(indices[0])), column, row)

    if rows > 2 * count:
        launch("named", 1, name)
    else:  # all rows sooner than those that are named
        b, item = Builder("tb_scatter_rows"), Var("i0", INDEX)
        b.store(b.buffer("lasts", int32, writes=True), item, Const(-1, int32))
        steps.add(b.finish([(item, b.size("rows", rows), rows)]), {"lasts": last})
    launch("last", 1, find)
    launch("set", wide, put, out=task.out)


def _by_all(task: KernelTask, steps: LaunchList, sizes: Sizes) -> None:
    """Let every owner read all indices, and store where a row is its own."""
    limits = steps.target.heuristics
    rows, wide = sizes.rows, sizes.wide
    _, _, *indices = task.root.inputs
    per_task = steps.target.row_per_task
    owners = max(
        1,
        min(
            limits.scatter_owners if per_task else -(-steps.target.work_items_to_fill // wide),
            limits.scatter_owners,
            rows,
        ),
    )
    b = Builder(f"tb_scatter_{task.root.attrs['mode']}")
    inliner, slots = task.inliner(b)
    owner, column, loops = _loops(b, owners, wide, per_task)
    per = b.size("per", -(-rows // owners))
    low = b.let(ix.multiply(owner, per), "low")
    high = b.let(ix.add(low, per), "high")
    shape = inliner.lengths(indices[0])
    first = ix.both([ix.less(var, ONE) for var, _, _ in loops]) if loops else None
    total = b.size("count", sizes.count)

    def take(places: Sequence[Expr]) -> None:
        """Look at indices side by side, then write in their order: reading waits for no writing."""
        with inliner.scope():
            seen = []
            for position in places:
                at = ix.unflatten(position, shape)
                seen.append((at, *_row(b, inliner, task, at)))
            for at, row, exists, rows, limits in seen:
                _report(b, inliner, rows, limits, exists, first)
                inside = [exists, Apply("less_equal", (low, row), bool_), ix.less(row, high)]
                with b.when(ix.both(inside)), inliner.scope():
                    _write_row(b, inliner, task, at, row, column, wide)

    even: Expr = ZERO
    if steps.target.subgroup_size and sizes.count >= limits.scatter_read_ahead:
        even = b.let(
            ix.multiply(
                ix.quotient(total, const(limits.scatter_read_ahead)), const(limits.scatter_read_ahead)
            ),
            "even",
        )
        with b.loop(ZERO, even, step=limits.scatter_read_ahead) as position:
            take([b.let(ix.add(position, const(k)), "position") for k in range(limits.scatter_read_ahead)])
    with b.loop(even, total) as position:
        take([position])
    steps.add(b.finish(loops, task=per_task), {**slots, "out": task.out})


def _by_bucket(task: KernelTask, steps: LaunchList, sizes: Sizes) -> None:
    """Bring the indices' numbers into the order of their rows' owners, then let these read their own."""
    rows, count, wide = sizes.rows, sizes.count, sizes.wide
    _, _, *indices = task.root.inputs
    per = -(-rows // BUCKETS)
    owners = -(-rows // per)
    per_task = steps.target.row_per_task
    inliners: list[Inliner] = []

    def open_(b: Builder) -> tuple[Read, dict[str, int]]:
        inliner, slots = task.inliner(b)
        inliners.append(inliner)

        def read(_: Expr, at: Expr) -> tuple[Expr, ...]:
            with inliner.scope():
                place = ix.unflatten(at, inliner.lengths(indices[0]))
                row, exists, rows, limits = _row(b, inliner, task, place)
            if len(inliners) == 1:  # the first kernel alone reports
                _report(b, inliner, rows, limits, exists, None)
            return Cast(at, int64), Select(exists, row, ZERO, INDEX)

        return read, slots

    def bucket(b: Builder, element: tuple[Expr, ...]) -> Expr:
        return ix.quotient(element[1], b.size("per", per))

    order = steps.temporary(count, int64)
    source = Source(rows=1, length=count, open=open_, bucket=bucket)
    target = Destination(part=0, dtype=int64, slot=order, place=lambda b, row, at: at)
    starts = distribute_with_starts("tb_scatter", source, [target], steps)
    b = Builder(f"tb_scatter_{task.root.attrs['mode']}_own")
    inliner, slots = task.inliner(b)
    owner, column, loops = _loops(b, owners, wide, per_task)
    pieces = b.size("chunks", chunks(1, count, steps))
    b.buffer("counts", INDEX)
    start = b.let(Load("counts", ix.multiply(owner, pieces), INDEX), "start")
    total = b.size("count", count)
    stop = b.let(total, "stop", mutable=True)
    with b.when(ix.less(ix.add(owner, ONE), b.size("owners", owners))):
        b.assign(stop, Load("counts", ix.multiply(ix.add(owner, ONE), pieces), INDEX))
    with b.loop(start, stop) as k, inliner.scope():
        number = b.let(Cast(Load(b.buffer("order", int64), k, int64), INDEX), "number")
        at = ix.unflatten(number, inliner.lengths(indices[0]))
        row, exists, _, _ = _row(b, inliner, task, at)
        with b.when(exists):
            _write_row(b, inliner, task, at, row, column, wide)
    named = {**slots, "out": task.out, "counts": starts, "order": order}
    steps.add(b.finish(loops, task=per_task), named)


def _loops(
    b: Builder, owners: int, wide: int, per_task: bool
) -> tuple[Expr, Expr | None, list[tuple[Var, Expr, int]]]:
    """Return the owner, the column where work-items do not take the whole row, and the loops over both."""
    owner, column = Var("i0", INDEX), Var("i1", INDEX)
    if per_task or wide == 1:
        return owner, None, [(owner, b.size("owners", owners), owners)]
    return column, owner, [(owner, b.size("wide", wide), wide), (column, b.size("owners", owners), owners)]


def _row(
    b: Builder, inliner: Inliner, task: KernelTask, at: tuple[Expr, ...]
) -> tuple[Expr, Expr, Sequence[Expr], Sequence[Expr]]:
    """Return the row that the indices at ``at`` name, whether it exists, the indices and their limits."""
    x, _, *indices = task.root.inputs
    limits = [inliner.length(x, k) for k in range(len(indices))]
    rows: list[Expr] = [b.let(Cast(inliner.value(i, at), INDEX), "row") for i in indices]
    conditions: list[Expr] = []
    for row, limit in zip(rows, limits, strict=True):
        conditions += [Apply("less_equal", (ZERO, row), bool_), ix.less(row, limit)]
    exists = b.let(ix.both(conditions), "ok")
    return b.let(ix.flatten(rows, limits), "at"), exists, rows, limits


def _report(
    b: Builder,
    inliner: Inliner,
    rows: Sequence[Expr],
    limits: Sequence[Expr],
    exists: Expr,
    first: Expr | None,
) -> None:
    """Report indices that name no row; where ``first`` is given, only a work-item for which it holds."""
    b.buffer(ERRORS, INDEX, writes=True)
    wrong: Expr = Apply("logical_not", (exists,), bool_)
    with b.when(wrong if first is None else ix.both([first, wrong])):
        for row, limit in zip(rows, limits, strict=True):
            b.emit(Report(ERRORS, inliner.code("scatter"), row, limit))


def _write_row(
    b: Builder,
    inliner: Inliner,
    task: KernelTask,
    at: tuple[Expr, ...],
    row: Expr,
    column: Expr | None,
    wide: int,
) -> None:
    if column is not None or wide == 1:
        _write(b, inliner, task, at, ZERO if column is None else column, row)
        return
    with b.loop(ZERO, b.size("wide", wide)) as k, inliner.scope():
        _write(b, inliner, task, at, k, row)


def _write(
    b: Builder, inliner: Inliner, task: KernelTask, at: tuple[Expr, ...], column: Expr, row: Expr,
    at_once: str = "",
) -> None:  # fmt: skip
    """Store one element, or combine it with what is there: column ``column`` of the row."""
    value = task.root.inputs[1]
    dtype = task.root.spec.dtype
    b.buffer("out", dtype, writes=True)
    tail, target = element_place(b, task, inliner, row, column)
    new = inliner.value(value, (*at, *tail))
    if at_once:
        b.store("out", target, new, combine=at_once)
        return
    op = MODES.get(task.root.attrs["mode"])
    b.store("out", target, new if op is None else Apply(op, (Load("out", target, dtype), new), dtype))


def _rank(task: KernelTask, launches: LaunchList, sizes: Sizes) -> None:
    ranked.lower_scatter_by_rank(task, launches, partial(_reported, task), sizes.op)


def _segments(task: KernelTask, launches: LaunchList, sizes: Sizes) -> None:
    segments.lower_segmented_scatter(task, launches, partial(_reported, task), sizes.op, sizes.rows)


_SCATTER: Final = frozenset({"scatter"})
COPY_ONLY: Final = Schedule(
    name="scatter of nothing",
    about="a copy is all",
    kinds=_SCATTER, applies=_copies, build=_build_copy,
)  # fmt: skip
ATOMICS: Final = Schedule(
    name="scatter by atomics",
    about="results are the same in any order: a work-item joins each element at once",
    kinds=_SCATTER, applies=_adds_at_once, build=_onto_copy(_at_once),
)  # fmt: skip
LAST_INDEX_WINS: Final = Schedule(
    name="scatter by last index",
    about="the last of several stores is the one with the greatest number, which an atomic finds",
    kinds=_SCATTER, applies=_finds_last, build=_onto_copy(_by_last),
)  # fmt: skip
BY_RANK: Final = Schedule(
    name="scatter by rank",
    about="some thousand wide rows: each index counts those before it, the first of a row adds them up",
    kinds=_SCATTER, applies=_ranks, build=_onto_copy(_rank),
)  # fmt: skip
SORTED_SEGMENTS: Final = Schedule(
    name="segmented scatter",
    about="many indices: they are sorted by row, and runs of one row are added up",
    kinds=_SCATTER, applies=_sorts, build=_onto_copy(_segments),
)  # fmt: skip
BUCKET_PER_OWNER: Final = Schedule(
    name="scatter by owners' buckets",
    about="many indices: each goes to the owner of its row",
    kinds=_SCATTER, applies=_fills_buckets, build=_onto_copy(_by_bucket),
)  # fmt: skip
EVERY_OWNER_READS_ALL: Final = Schedule(
    name="scatter by owners",
    about="few indices: every owner of rows reads all of them",
    kinds=_SCATTER, applies=_always, build=_onto_copy(_by_all),
)  # fmt: skip
