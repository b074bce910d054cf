"""Stable partition on GPUs: the elements of bucket 0 come first, those of each bucket in their order.

A workgroup takes a tile. It counts the first kind; the running sums of all counts say where those of a
tile begin. The tile is put in order in local memory, so that neighbours go to neighbouring places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ....dtypes.definition import bool_, int32, int64, uint16
from ....tracing.sym_int import known_divisor
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import LaunchList
from ...ir.loop_ir import INDEX, Apply, Array, Barrier, Cast, Expr, Load, Select, Var
from ..pointwise.vector_access import emit_vector, vector_width
from ..reduction.reducer import ProductReducer, Reducer
from ..workgroup import workgroup_size
from .bucket_pass import Destination, Source
from .tile_kernel import TileKernel, Tiles, sum_counts

_SUM: Final = ProductReducer(parts=(Reducer(op="sum", dtypes=(int32,)),))


def _slot(b: Builder, tiles: Tiles, row: Expr, tile: Expr) -> Expr:
    """Return where it stands how many of the first kind are before a tile, or behind the last."""
    return ix.add(ix.multiply(row, ix.add(b.size("tiles", tiles.count), ONE)), tile)


def lower_partition(name: str, source: Source, targets: Sequence[Destination], steps: LaunchList) -> None:
    """Append the launches of a pass."""
    limits = steps.target.heuristics
    rows, length = source.rows, source.length
    each = (
        limits.partition_elements
        if length >= limits.partition_elements * limits.workgroup_max
        else limits.partition_elements // 2
    )
    size = workgroup_size(-(-length // each), limits.workgroup_max)
    tiles = Tiles(rows=rows, length=length, size=size, each=each)
    if tiles.count == 1:
        _move(name, source, targets, tiles, None, steps)
        return
    line = (rows, tiles.count + 1)
    counts, begins = (steps.temporary(line[0] * line[1], int64) for _ in range(2))
    _count(name, source, tiles, counts, steps)
    sum_counts(counts, begins, line, steps)
    _move(name, source, targets, tiles, begins, steps)


def _look(
    kernel: TileKernel, source: Source, steps: LaunchList, take: Callable[[Expr, Expr], None]
) -> tuple[Var, Var]:
    """Emit the count of a work-item's elements of the first kind; return where it begins, and the count.

    ``take`` gets the number of each element, and 1 or 0.
    """
    b, tiles = kernel.b, kernel.tiles
    begin = b.let(ix.multiply(kernel.item, const(tiles.each)), "first")
    seen = b.let(literal(0, int32), "seen", mutable=True)
    lanes = vector_width(steps.target, known_divisor(tiles.length, tiles.each), [bool_])

    def one(first: Expr, u: Expr = ZERO) -> None:
        number = ix.add(first, u)
        at = b.let(ix.add(ix.add(kernel.start, begin), number), "at")
        parts = tuple(b.let(e, "part") for e in kernel.read(kernel.row, at))
        is_less = b.let(Cast(ix.less(source.bucket(b, parts), ONE), int32), "found")
        take(number, is_less)
        b.assign(seen, Apply("add", (seen, is_less), int32))

    for k in range(0, tiles.each, lanes):
        at = ix.add(ix.add(kernel.start, begin), const(k))
        with b.when(ix.less(at, kernel.length)):
            if lanes > 1:
                emit_vector(b, lanes, partial(one, const(k)))
            else:
                one(const(k))
    return begin, seen


def _count(name: str, source: Source, tiles: Tiles, counts: int, steps: LaunchList) -> None:
    """Append what counts. A count stands behind its own place, so that the sums are of what is before."""
    kernel = TileKernel.begin(f"{name}_count", source, tiles, steps)
    b = kernel.b
    _, seen = _look(kernel, source, steps, lambda number, total: None)
    (total,) = kernel.workgroup.reduce_across(_SUM, (seen,))
    b.buffer("counts", int64, writes=True)
    with b.when(ix.less(kernel.item, ONE)):
        after = _slot(b, tiles, kernel.row, ix.add(kernel.tile, ONE))
        b.store("counts", after, Cast(total, int64))
        with b.when(ix.less(kernel.tile, ONE)):
            b.store("counts", _slot(b, tiles, kernel.row, ZERO), literal(0, int64))
    kernel.finish([], steps, counts=counts)


def _move(
    name: str,
    source: Source,
    targets: Sequence[Destination],
    tiles: Tiles,
    begins: int | None,
    steps: LaunchList,
) -> None:
    """Append what puts the elements of a tile in order among themselves, then where they belong.

    Without ``begins`` a tile is a row.
    """
    kernel = TileKernel.begin(f"{name}_move", source, tiles, steps)
    b, workgroup, each = kernel.b, kernel.workgroup, tiles.each
    kinds, ordered = b.fresh("kinds"), b.fresh("ordered")
    first, seen = _look(kernel, source, steps, lambda number, kind: b.store(kinds, number, kind))
    (left,), (whole,) = workgroup.exclusive_scan(_SUM, (seen,), (literal(0, int32),))
    run = b.let(Cast(left, INDEX), "run", mutable=True)
    whole = b.let(Cast(whole, INDEX), "whole")
    tile = b.let(ix.minimum(ix.subtract(kernel.length, kernel.start), const(tiles.whole)), "size")
    with b.loop(ZERO, const(each), kind="unroll", prefix="u") as u:
        number = b.let(ix.add(first, u), "number")
        with b.when(ix.less(number, tile)):
            kind = b.let(Cast(Load(kinds, u, int32), INDEX), "found")
            behind = ix.add(whole, ix.subtract(number, run))
            place = b.let(Select(ix.less(ZERO, kind), run, behind, INDEX), "place")
            b.store(ordered, place, Cast(number, uint16))
            b.assign(run, ix.add(run, kind))
    b.emit(Barrier())
    base: Expr = ZERO
    total: Expr = whole
    if begins is not None:
        b.buffer("begins", int64)
        base, total = (
            b.let(Cast(Load("begins", _slot(b, tiles, kernel.row, at), int64), INDEX), "begin")
            for at in (kernel.tile, b.size("tiles", tiles.count))
        )
    # Elements of the other kind stand behind all of the first, and those of them that are before the tile.
    other = b.let(ix.subtract(ix.add(total, ix.subtract(kernel.start, base)), whole), "other")
    with b.loop(ZERO, const(each), kind="unroll", prefix="u") as u:
        number = b.let(ix.add(kernel.item, ix.multiply(u, const(tiles.size))), "number")
        with b.when(ix.less(number, tile)):
            shift = Select(ix.less(number, whole), base, other, INDEX)
            to = b.let(ix.add(number, shift), "to")
            at = b.let(ix.add(kernel.start, Cast(Load(ordered, number, uint16), INDEX)), "at")
            parts = kernel.read(kernel.row, at)
            for k, target in enumerate(targets):
                out = b.buffer(f"to{k}", target.dtype, writes=True)
                b.store(out, target.place(b, kernel.row, to), parts[target.part])
    b.emit(Barrier())  # before the next tile's elements come
    arrays = [Array(kinds, int32, each), Array(ordered, uint16, tiles.whole, "shared")]
    slots = {} if begins is None else {"begins": begins}
    kernel.finish(arrays, steps, **slots, **{f"to{k}": target.slot for k, target in enumerate(targets)})
