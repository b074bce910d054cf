"""Scatter by rank on GPUs: each of some thousand indices counts those that come before its row's own.

So every index finds its place in the order of rows, in one pass over all of them, and the first of each row
adds up what the others bring, in the order of the indices. A sum of ``n`` indices takes ``n`` times ``n``
comparisons, which many work-items make sooner than one owner of rows reads all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from ....dtypes.definition import bool_, int32
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ONE, ZERO, const
from ...ir.inline import Inliner
from ...ir.kernel_task import KernelTask, LaunchList
from ...ir.loop_ir import INDEX, Apply, Cast, Expr, For, Load, Select, Var
from ...target import Target
from .sizes import Sizes, element_place

Row = Callable[[Builder, Inliner, Expr], tuple[Expr, Expr]]
"""Emits what reads an index, and reports it; returns its row, and whether it exists."""


def lower_scatter_by_rank(task: KernelTask, steps: LaunchList, row: Row, op: str | None) -> None:
    """Append the launches of a scatter onto what is stored already; without ``op`` the last value stays."""
    count = prod(task.root.inputs[2].spec.shape)
    places = [steps.temporary(count, int32) for _ in range(4)]
    _read(task, steps, row, places[0], count)
    _rank(steps, places, count)
    _add(task, steps, op, places, count)


def _read(task: KernelTask, steps: LaunchList, row: Row, rows: int, count: int) -> None:
    b = Builder("tb_scatter_rows")
    inliner, slots = task.inliner(b)
    item = Var("i0", INDEX)
    number, exists = row(b, inliner, item)
    b.buffer("rows", int32, writes=True)
    b.store("rows", item, Select(exists, Cast(number, int32), Cast(const(-1), int32), int32))
    steps.add(b.finish([(item, b.size("count", count), count)]), {**slots, "rows": rows})


def _rank(steps: LaunchList, places: Sequence[int], count: int) -> None:
    """Append what puts the numbers of the indices in the order of their rows.

    ``begins`` has for the first index of a row where the row's begin in that order, else -1; ``many`` how
    many there are.
    """
    limits = steps.target.heuristics
    b, subgroup = Builder("tb_scatter_rank"), steps.target.subgroup_size
    b.buffer("rows", int32)
    for name in ("order", "begins", "many"):
        b.buffer(name, int32, writes=True)
    lane, item = Var("i0", INDEX), Var("i1", INDEX)
    total = b.size("count", count)
    mine, number = b.let(Load("rows", item, int32), "mine"), b.let(Cast(item, int32), "number")
    none = Cast(ZERO, int32)
    less, before, all_ = (b.let(none, "sum", mutable=True) for _ in range(3))

    def count_in(numbers: Sequence[Expr]) -> None:
        read = [(n, b.let(Load("rows", n, int32), "row")) for n in numbers]
        for n, one in read:
            same = b.let(Apply("equal", (one, mine), bool_), "same")
            earlier = Apply("less", (Cast(n, int32), number), bool_)
            for var, what in (
                (less, Apply("less", (one, mine), bool_)), (before, ix.both([same, earlier])), (all_, same),
            ):  # fmt: skip
                b.assign(var, Apply("add", (var, Cast(what, int32)), int32))

    turns = b.let(ix.quotient(total, const(limits.scatter_rank_unroll * subgroup)), "turns")
    with b.loop(ZERO, turns, prefix="turn") as turn:
        first = b.let(ix.add(ix.multiply(turn, const(limits.scatter_rank_unroll * subgroup)), lane), "first")
        count_in([ix.add(first, const(k * subgroup)) for k in range(limits.scatter_rank_unroll)])
    k = Var(b.fresh("k"), INDEX)
    with b.inner() as body:
        count_in([k])
    rest = b.let(ix.add(ix.multiply(turns, const(limits.scatter_rank_unroll * subgroup)), lane), "rest")
    b.emit(For(k, rest, total, tuple(body), step=subgroup))
    counts: list[Expr] = [less, before, all_]
    apart = subgroup // 2
    while apart:
        counts = [
            b.let(Apply("add", (e, Apply(f"shuffle_xor_{apart}", (e,), int32)), int32), "all") for e in counts
        ]
        apart //= 2
    place = b.let(Apply("add", (counts[0], counts[1]), int32), "place")
    with b.when(ix.less(lane, ONE)):
        b.store("order", Cast(place, INDEX), number)
        exists = Apply("less_equal", (none, mine), bool_)
        leads = ix.both([exists, Apply("equal", (counts[1], none), bool_)])
        b.store("begins", item, Select(leads, place, Cast(const(-1), int32), int32))
        b.store("many", item, counts[2])
    launch = b.finish([(lane, const(subgroup), subgroup), (item, total, count)])
    names = ("rows", "order", "begins", "many")
    steps.add(
        replace(launch, kernel=replace(launch.kernel, group=subgroup)), dict(zip(names, places, strict=True))
    )


def add_up(
    b: Builder, task: KernelTask, inliner: Inliner, total: Var, tail: Sequence[Expr], span: tuple[Expr, Expr],
    op: str | None, target: Target,
) -> None:  # fmt: skip
    """Emit what adds to a mutable ``total`` what the indices in ``order`` bring, from one place to another.

    ``tail`` is where the element lies in what one index brings. Values are read some at a time.
    """
    ahead = target.heuristics.scatter_rank_read_ahead
    _, value, indices, *_ = task.root.inputs
    start, stop = span

    def add(places: Sequence[Expr]) -> None:
        with inliner.scope():
            numbers = [b.let(Cast(Load("order", n, int32), INDEX), "at") for n in places]
            lengths = inliner.lengths(indices)
            new = [b.let(inliner.value(value, (*ix.unflatten(k, lengths), *tail)), "new") for k in numbers]
        for e in new:
            b.assign(total, e if op is None else Apply(op, (total, e), total.dtype))

    whole = ix.multiply(ix.quotient(ix.subtract(stop, start), const(ahead)), const(ahead))
    even = b.let(ix.add(start, whole), "even")
    with b.loop(start, even, step=ahead) as k:
        add([ix.add(k, const(u)) for u in range(ahead)])
    with b.loop(even, stop) as k:
        add([k])


def _add(task: KernelTask, steps: LaunchList, op: str | None, places: Sequence[int], count: int) -> None:
    dtype, wide = task.root.spec.dtype, Sizes.of(task.root).wide
    b = Builder(f"tb_scatter_{task.root.attrs['mode']}_ranked")
    inliner, slots = task.inliner(b)
    for name in ("rows", "order", "begins", "many"):
        b.buffer(name, int32)
    b.buffer("out", dtype, writes=True)
    column, item = Var("i0", INDEX), Var("i1", INDEX)
    begin = b.let(Cast(Load("begins", item, int32), INDEX), "begin")
    with b.when(Apply("less_equal", (ZERO, begin), bool_)):
        row = Cast(Load("rows", item, int32), INDEX)
        tail, to = element_place(b, task, inliner, row, column)
        total = b.let(Load("out", to, dtype), "total", mutable=True)
        many = b.let(Cast(Load("many", item, int32), INDEX), "many")

        add_up(b, task, inliner, total, tail, (begin, ix.add(begin, many)), op, steps.target)
        b.store("out", to, total)
    named = dict(zip(("rows", "order", "begins", "many"), places, strict=True))
    loops = [(column, b.size("wide", wide), wide), (item, b.size("count", count), count)]
    steps.add(b.finish(loops), {**slots, **named, "out": task.out})
