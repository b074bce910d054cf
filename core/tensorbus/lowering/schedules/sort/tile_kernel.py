"""Tiles of rows, a workgroup to each: what passes on GPUs that count first and move then have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....backend_interface.graph import Node
from ....dtypes.definition import int64
from ....ops.definition import Spec
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import const
from ...ir.kernel_task import KernelTask, LaunchList
from ...ir.layout import packed
from ...ir.loop_ir import INDEX, Array, Expr, Var
from ..scan.scan import lower_scan
from ..workgroup import Workgroup
from .bucket_pass import Read, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """The tiles of rows: ``count`` to a row, of ``size`` work-items that take ``each`` neighbours."""

    rows: int
    length: int
    size: int
    each: int

    @property
    def whole(self) -> int:
        """The elements of a tile."""
        return self.size * self.each

    @property
    def count(self) -> int:
        """The tiles of a row."""
        return -(-self.length // self.whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileKernel:
    """A kernel whose workgroups take a tile each, while it is written.

    ``item`` is a work-item's number in its workgroup, ``start`` where in its ``row`` the ``tile`` starts;
    ``read`` reads elements of the source, from buffers of these ``slots``.
    """

    b: Builder
    tiles: Tiles
    workgroup: Workgroup
    group: Var
    row: Expr
    tile: Expr
    length: Expr
    start: Expr
    read: Read
    slots: dict[str, int]

    @classmethod
    def begin(cls, name: str, source: Source, tiles: Tiles, steps: LaunchList) -> TileKernel:
        """Return a new kernel that reads a source."""
        b = Builder(name)
        workgroup, group = Workgroup.of(b, tiles.size, steps.target), Var("i1", INDEX)
        count = b.size("tiles", tiles.count)
        row, tile = b.let(ix.quotient(group, count), "row"), b.let(ix.modulo(group, count), "tile")
        length = b.size("length", tiles.length)
        start = b.let(ix.multiply(tile, const(tiles.whole)), "start")
        read, slots = source.open(b)
        return cls(
            b=b, tiles=tiles, workgroup=workgroup, group=group, row=row, tile=tile, length=length,
            start=start, read=read, slots=slots,
        )  # fmt: skip

    @property
    def item(self) -> Expr:
        """The number of the work-item in its group."""
        return self.workgroup.item

    def finish(self, arrays: Sequence[Array], steps: LaunchList, **slots: int) -> None:
        """Append the launch."""
        groups = self.tiles.rows * self.tiles.count
        launch = self.b.finish([self.workgroup.loop, (self.group, self.b.size("groups", groups), groups)])
        steps.add(self.workgroup.finished(launch, arrays), {**self.slots, **slots})


def sum_counts(counts: int, begins: int, shape: tuple[int, int], steps: LaunchList) -> None:
    """Append the running sums of rows of counts, which say where what is counted begins."""
    operand = Node(op="input", inputs=(), attrs={}, spec=Spec(shape, int64))
    total = Node(op="cumulative_sum", inputs=(operand,), attrs={"axis": 1}, spec=operand.spec)
    leaves = {id(operand): packed(counts, shape)}
    lower_scan(KernelTask(root=total, inputs=leaves, scalars={}, out=begins), steps)
