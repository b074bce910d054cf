"""Stable partition on GPUs: the elements of bucket 0 come first, those of each bucket in their order.

A workgroup takes a tile. It counts the first kind; the running sums of all counts say where those of a
tile begin. The tile is put in order in local memory, so that neighbours go to neighbouring places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Final

from ....backend_interface.graph import Node
from ....dtypes.definition import bool_, int32, int64, uint16
from ....ops.definition import Spec
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import KernelTask, LaunchList
from ...ir.layout import packed
from ...ir.loop_ir import INDEX, Apply, Array, Barrier, Cast, Expr, Load, Select, Var
from ..pointwise.vector_access import emit_vector, vector_width
from ..reduction.reducer import ProductReducer, Reducer
from ..scan.scan import lower_scan
from ..workgroup import Workgroup

if TYPE_CHECKING:
    from .bucket_pass import Destination, Source

_SUM: Final = ProductReducer(parts=(Reducer(op="sum", dtypes=(int32,)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tiles:
    """How rows are cut: ``count`` tiles to a row, of ``size`` items that take ``each`` neighbours.

    An item reads ``lanes`` of them at once.
    """

    rows: int
    length: int
    size: int
    each: int
    lanes: int

    @property
    def whole(self) -> int:
        """The elements of a tile."""
        return self.size * self.each

    @property
    def count(self) -> int:
        return -(-self.length // self.whole)

    def slot(self, b: Builder, row: Expr, tile: Expr) -> Expr:
        """Return where it stands how many of the first kind are before a tile, or behind the last."""
        return ix.add(ix.multiply(row, ix.add(b.size("tiles", self.count), ONE)), tile)


def lower_partition(name: str, source: Source, targets: Sequence[Destination], steps: LaunchList) -> None:
    """Append the launches of a pass."""
    limits = steps.target.heuristics
    rows, length = source.rows, source.length
    each = (
        limits.partition_elements
        if length >= limits.partition_elements * limits.workgroup_max
        else limits.partition_elements // 2
    )
    size = max(32, min(limits.workgroup_max, 1 << (-(-length // each) - 1).bit_length()))
    lanes = vector_width(steps.target, gcd(length, each), [bool_])
    tiles = _Tiles(rows=rows, length=length, size=size, each=each, lanes=lanes)
    if tiles.count == 1:
        _move(name, source, targets, tiles, None, steps)
        return
    line = (rows, tiles.count + 1)
    counts, begins = (steps.temporary(line[0] * line[1], int64) for _ in range(2))
    _count(name, source, tiles, counts, steps)
    given = Node(op="input", inputs=(), attrs={}, spec=Spec(line, int64))
    total = Node(op="cumulative_sum", inputs=(given,), attrs={"axis": 1}, spec=given.spec)
    lower_scan(
        KernelTask(root=total, inputs={id(given): packed(counts, line)}, scalars={}, out=begins), steps
    )
    _move(name, source, targets, tiles, begins, steps)


class _Kernel:
    """A kernel whose groups take a tile each, as it is written."""

    def __init__(self, name: str, source: Source, tiles: _Tiles, steps: LaunchList) -> None:
        self.b = b = Builder(name)
        self.source, self.tiles, self.steps = source, tiles, steps
        self.workgroup, self.group = Workgroup.of(b, tiles.size, steps.target), Var("i1", INDEX)
        self.item = self.workgroup.item
        count = b.size("tiles", tiles.count)
        self.row = b.let(ix.quotient(self.group, count), "row")
        self.tile = b.let(ix.modulo(self.group, count), "tile")
        self.length = b.size("length", tiles.length)
        self.start = b.let(ix.multiply(self.tile, const(tiles.whole)), "start")
        self.first = b.let(ix.multiply(self.item, const(tiles.each)), "first")
        self.read, self.slots = source.open(b)
        self.seen = b.let(literal(0, int32), "seen", mutable=True)

    def look(self, take: Callable[[Expr, Expr], None]) -> None:
        """Emit the count of its elements of the first kind; ``take`` gets the number of each, and 1 or 0."""
        b, tiles = self.b, self.tiles

        def one(first: Expr, u: Expr = ZERO) -> None:
            number = ix.add(first, u)
            at = b.let(ix.add(ix.add(self.start, self.first), number), "at")
            parts = tuple(b.let(e, "part") for e in self.read(self.row, at))
            found = b.let(Cast(ix.less(self.source.bucket(b, parts), ONE), int32), "found")
            take(number, found)
            b.assign(self.seen, Apply("add", (self.seen, found), int32))

        for k in range(0, tiles.each, tiles.lanes):
            at = ix.add(ix.add(self.start, self.first), const(k))
            with b.when(ix.less(at, self.length)):
                if tiles.lanes > 1:
                    emit_vector(b, tiles.lanes, partial(one, const(k)))
                else:
                    one(const(k))

    def add(self, arrays: Sequence[Array], **slots: int) -> None:
        """Append the launch."""
        groups = self.tiles.rows * self.tiles.count
        made = self.b.finish([self.workgroup.loop, (self.group, self.b.size("groups", groups), groups)])
        self.steps.add(self.workgroup.finished(made, arrays), {**self.slots, **slots})


def _count(name: str, source: Source, tiles: _Tiles, counts: int, steps: LaunchList) -> None:
    """Append what counts. A count stands behind its own place, so that the sums are of what is before."""
    kernel = _Kernel(f"{name}_count", source, tiles, steps)
    b = kernel.b
    kernel.look(lambda number, found: None)
    (found,) = kernel.workgroup.reduce_across(_SUM, (kernel.seen,))
    b.buffer("counts", int64, writes=True)
    with b.when(ix.less(kernel.item, ONE)):
        after = tiles.slot(b, kernel.row, ix.add(kernel.tile, ONE))
        b.store("counts", after, Cast(found, int64))
        with b.when(ix.less(kernel.tile, ONE)):
            b.store("counts", tiles.slot(b, kernel.row, ZERO), literal(0, int64))
    kernel.add([], counts=counts)


def _move(
    name: str,
    source: Source,
    targets: Sequence[Destination],
    tiles: _Tiles,
    begins: int | None,
    steps: LaunchList,
) -> None:
    """Append what puts the elements of a tile in order among themselves, then where they belong.

    Without ``begins`` a tile is a row.
    """
    kernel = _Kernel(f"{name}_move", source, tiles, steps)
    b, workgroup, each = kernel.b, kernel.workgroup, tiles.each
    kinds, ordered = b.fresh("kinds"), b.fresh("ordered")
    kernel.look(lambda number, found: b.store(kinds, number, found))
    (left,), (whole,) = workgroup.exclusive_scan(_SUM, (kernel.seen,), (literal(0, int32),))
    run = b.let(Cast(left, INDEX), "run", mutable=True)
    whole = b.let(Cast(whole, INDEX), "whole")
    tile = b.let(ix.minimum(ix.subtract(kernel.length, kernel.start), const(tiles.whole)), "size")
    with b.loop(ZERO, const(each), kind="unroll", prefix="u") as u:
        number = b.let(ix.add(kernel.first, u), "number")
        with b.when(ix.less(number, tile)):
            found = b.let(Cast(Load(kinds, u, int32), INDEX), "found")
            behind = ix.add(whole, ix.subtract(number, run))
            place = b.let(Select(ix.less(ZERO, found), run, behind, INDEX), "place")
            b.store(ordered, place, Cast(number, uint16))
            b.assign(run, ix.add(run, found))
    b.emit(Barrier())
    base: Expr = ZERO
    total: Expr = whole
    if begins is not None:
        b.buffer("begins", int64)
        base, total = (
            b.let(Cast(Load("begins", tiles.slot(b, kernel.row, at), int64), INDEX), "begin")
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
    kernel.add(arrays, **slots, **{f"to{k}": target.slot for k, target in enumerate(targets)})
