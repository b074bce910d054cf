"""Scatter along the last axis on GPUs: a workgroup takes a row, with what it needs in local memory.

The least number of an index that names a place is searched by all work-items at once, and that one adds what
it brings; then the least of those that are left, until there are none. So sums add up in the order of the
indices, and never depend on timing. Of several stores the one with the greatest number stays.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from math import prod
from typing import Final

from ....backend_interface.graph import Node
from ....dtypes.definition import bool_, float32, int32
from ...fusion.collapse_dims import collapse
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.inline import ERRORS, Index, Inliner
from ...ir.kernel_task import KernelTask, LaunchList
from ...ir.loop_ir import INDEX, Apply, Array, Barrier, Cast, Expr, For, Load, Report, Select, Var
from ...target import Target
from ..pointwise.pointwise import lower_map
from ..reduction.blocked_sum import Span
from ..schedule import Schedule, ScheduleRequest, Verdict
from ..workgroup import Workgroup
from .modes import MODES

INT32_NUMBERS: Final = 1 << 31
"""A row has fewer indices: their numbers are 32 bits long."""
NEEDED: Final = frozenset({("minimum", int32), ("maximum", int32)})


def serves(node: Node, target: Target) -> Verdict:
    """Return whether a scatter's indices name each element's own row, and any place in it."""
    limits = target.heuristics
    x, _, *indices = node.inputs
    shape = indices[0].spec.shape
    if target.row_per_task or not target.atomics >= NEEDED:
        return "the least and greatest int32 cannot be had by atomics of work-items"
    if not len(indices) == len(shape) == len(x.spec.shape) > 1:
        return "indices are not given for each element"
    if shape[:-1] != x.spec.shape[:-1] or 0 in shape or 0 in x.spec.shape:
        return "indices are not given for each row, or there is nothing"
    if _needed(x.spec.shape[-1], target) > target.local_memory:
        return "a row does not fit into local memory"
    if shape[-1] >= (
        INT32_NUMBERS if prod(shape[:-1]) >= limits.scatter_row_busy_rows else limits.scatter_row_max_length
    ):
        return "rows have too many indices"
    own = all(_is_own(i, k) for k, i in enumerate(indices[:-1]))
    return True if own else "indices may name other rows"


def _whole(length: int) -> int:
    """Return the elements of an array for rows of a length: one kernel serves many."""
    return 1 << (length - 1).bit_length()


def _needed(length: int, target: Target) -> int:
    """Return the bytes of the numbers that places have, and of the places of some indices."""
    limits = target.heuristics
    return (
        _whole(length) + limits.scatter_row_max_workgroup * limits.scatter_row_max_indices + 1
    ) * int32.itemsize


def _is_own(node: Node, axis: int) -> bool:
    """Return whether each element of a node is its place along an axis."""
    alone = node.spec.shape[axis] == 1
    while node.op in ("broadcast_to", "reshape"):
        (inner,) = node.inputs
        shape, within = node.spec.shape, inner.spec.shape
        if alone:
            axis = 0
        elif node.op == "broadcast_to":
            axis -= len(shape) - len(within)
            if axis < 0 or within[axis] == 1:
                return False
        else:
            wide, long_axes = ([k for k, n in enumerate(s) if n != 1] for s in (shape, within))
            if [shape[k] for k in wide] != [within[k] for k in long_axes]:
                return False
            axis = long_axes[wide.index(axis)]
        node = inner
    if alone and node.op == "constant":
        return bool(node.attrs["value"] == 0)
    counts = node.op == "iota" and axis == 0 and (node.attrs["length"] == 1 or not alone)
    return counts and node.attrs["start"] == 0 and node.attrs["step"] == 1


def lower_row_scatter(task: KernelTask, steps: LaunchList, op: str | None) -> None:
    """Append the launches of such a scatter; without ``op`` the last value stays."""
    limits = steps.target.heuristics
    x, _, *indices = task.root.inputs
    dtype, length = task.root.spec.dtype, x.spec.shape[-1]
    size = int(_whole(length))
    needed = _needed(length, steps.target) + size * max(dtype.itemsize, float32.itemsize)
    near = op is not None and needed <= steps.target.local_memory
    if op is not None and not near:
        lower_map(collapse(replace(task, root=x)), steps)
    b = Builder(f"tb_scatter_{task.root.attrs['mode']}_along")
    inliner, slots = task.inliner(b)
    count = indices[-1].spec.shape[-1]
    wide = min(
        max(1 << (count // 4).bit_length(), limits.scatter_row_min_workgroup),
        limits.scatter_row_max_workgroup,
    )
    wide = int(wide)
    each = int(min(1 << (-(-count // wide) - 1).bit_length(), limits.scatter_row_max_indices))
    workgroup, names = Workgroup(b, wide, 0, limits.workgroup_read_ahead), b.fresh("numbers")
    arrays = [Array(names, int32, size, "shared")]
    row: _RowScatter
    if op is None:
        row = _LastWins(b, task, inliner, workgroup, each, names)
    else:
        row = joined = _Accumulated(
            b, task, inliner, workgroup, each, names, op, near, limits.scatter_claim_rounds
        )
        arrays += [Array(joined.shared_row, dtype, size, "shared")] if near else []
        arrays += [Array(joined.left, int32, 1, "shared"), Array(joined.listed, int32, joined.size, "shared")]
    row.lower()
    rows = prod(x.spec.shape[:-1])
    launch = row.workgroup.finished(b.finish([row.workgroup.loop, (row.number, b.size("rows", rows), rows)]))
    kernel = replace(launch.kernel, body=(*arrays, *launch.kernel.body))
    steps.add(replace(launch, kernel=kernel), {**slots, "out": task.out})


_NONE: Final = literal(-1, int32)
"""The place of an index that is done, or names none."""
Take = Callable[[Expr, Expr, Expr, Expr], None]
"""Gets which index of a work-item it is, which of the workgroup, its place, and its number in this turn."""


class _RowScatter:
    """The kernel, as it is written: what a workgroup does with its row. ``names`` numbers the places."""

    def __init__(
        self, b: Builder, task: KernelTask, inliner: Inliner, workgroup: Workgroup, each: int, names: str
    ) -> None:
        self.b, self.task, self.inliner, self.workgroup, self.each, self.names = (
            b,
            task,
            inliner,
            workgroup,
            each,
            names,
        )
        self.x, self.value, *indices = task.root.inputs
        self.index = indices[-1]
        self.dtype = task.root.spec.dtype
        self.number = Var("i1", INDEX)
        lengths = inliner.lengths(self.x)
        self.length, self.count = lengths[-1], inliner.length(self.index, len(lengths) - 1)
        self.outer = b.all(ix.unflatten(self.number, lengths[:-1]))
        self.begin = b.let(ix.multiply(self.number, self.length), "begin")
        b.buffer("out", self.dtype, writes=True)
        b.buffer(ERRORS, INDEX, writes=True)

    def lower(self) -> None:
        """Emit all of it."""
        raise NotImplementedError

    def _turns(self) -> AbstractContextManager[Expr]:
        """Return the loop over blocks of indices, as many as the workgroup takes at a time."""
        block = self.workgroup.size * self.each
        turns = ix.quotient(ix.add(self.count, const(block - 1)), const(block))
        return self.b.loop(ZERO, turns, prefix="block")

    def _fill(self, number: int) -> None:
        """Emit what gives every place a number."""
        place = Var(self.b.fresh("k"), INDEX)
        with self.b.inner() as body:
            self.b.store(self.names, place, literal(number, int32))
        self.b.emit(For(place, self.workgroup.item, self.length, tuple(body), step=self.workgroup.size))
        self.b.emit(Barrier())

    def _read(self, block: Expr, take: Callable[[Expr, Expr, Expr, Expr, Index], None]) -> None:
        """Emit what a work-item does with each of its indices of a block.

        ``take`` gets which of them it is, its number, its place, whether there is such, and where it stands.
        """
        b, width = self.b, self.workgroup.size
        start = b.let(ix.add(ix.multiply(block, const(width * self.each)), self.workgroup.item), "start")
        with b.loop(ZERO, const(self.each), kind="unroll", prefix="u") as k, self.inliner.scope():
            number = b.let(ix.add(start, ix.multiply(k, const(width))), "number")
            inside = b.let(ix.less(number, self.count), "inside")
            at = (*self.outer, b.let(ix.minimum(number, ix.subtract(self.count, ONE)), "at"))
            row = b.let(Cast(self.inliner.value(self.index, at), INDEX), "found")
            known = ix.both([Apply("less_equal", (ZERO, row), bool_), ix.less(row, self.length)])
            exists = b.let(ix.both([inside, known]), "exists")
            with b.when(ix.both([inside, Apply("logical_not", (exists,), bool_)])):
                b.emit(Report(ERRORS, self.inliner.code("scatter"), row, self.length))
            take(k, number, row, exists, at)


class _LastWins(_RowScatter):
    """A row whose places get the values with the greatest numbers."""

    def lower(self) -> None:
        """Emit all of it."""
        b = self.b

        def note(k: Expr, number: Expr, place: Expr, exists: Expr, at: Index) -> None:
            with b.when(exists):
                b.store(self.names, place, Cast(number, int32), combine="maximum")

        self._fill(-1)
        with self._turns() as turn:
            self._read(turn, note)
        b.emit(Barrier())

        def put(place: Expr) -> None:
            with self.inliner.scope():
                number = b.let(Load(self.names, place, int32), "number")
                at = b.let(Cast(Apply("maximum", (number, literal(0, int32)), int32), INDEX), "at")
                new = self.inliner.value(self.value, (*self.outer, at))
                old = self.inliner.value(self.x, (*self.outer, place))
                named = Apply("less_equal", (literal(0, int32), number), bool_)
                b.store("out", ix.add(self.begin, place), Select(named, new, old, self.dtype))

        self.workgroup.strided_loop(Span(ZERO, self.length, 0), put)
        b.emit(Barrier())  # before the next row comes


class _Accumulated(_RowScatter):
    """A row that values are joined with by ``op``: ``kept`` near, if it has a name there.

    ``left`` says after which turn some indices were left, ``listed`` are the places of those in the end.
    After ``rounds`` turns few are left, whose first indices look for the rest.
    """

    def __init__(
        self, b: Builder, task: KernelTask, inliner: Inliner, workgroup: Workgroup, each: int, names: str,
        op: str, near: bool, rounds: int,
    ) -> None:  # fmt: skip
        super().__init__(b, task, inliner, workgroup, each, names)
        self.op, self.size, self.rounds = op, workgroup.size * each, rounds
        self.shared_row, self.left, self.listed = (
            b.fresh("row") if near else "",
            b.fresh("left"),
            b.fresh("places"),
        )
        self.row, self.first = self.shared_row or "out", ZERO if near else self.begin
        self.places, self.values = b.array(int32, each), b.array(self.dtype, each)

    def lower(self) -> None:
        """Emit all of it: as many turns as most places need, then one for what is left."""
        b = self.b
        if self.shared_row:
            self.workgroup.strided_loop(Span(ZERO, self.length, 0), self._fetch)
        with self._turns() as block:
            self._fill(2**31 - 1)
            self._read(block, self._note)
            b.emit(Barrier())
            stop = b.let(const(min(self.rounds, self.size)), "stop", mutable=True)
            with b.loop(ZERO, stop, prefix="turn") as turn:
                after = b.let(Cast(ix.add(turn, ONE), int32), "after")
                self._each(turn, self._claim)
                b.emit(Barrier())
                self._each(turn, partial(self._add, after))
                b.emit(Barrier())
                with b.when(Apply("not_equal", (Load(self.left, ZERO, int32), after), bool_)):
                    b.assign(stop, ZERO)
            with b.when(ix.less(ZERO, stop)):
                with b.loop(ZERO, const(self.each), kind="unroll", prefix="u") as k:
                    own = ix.add(ix.multiply(k, const(self.workgroup.size)), self.workgroup.item)
                    b.store(self.listed, own, Load(self.places, k, int32))
                self._each(const(self.rounds), self._claim)
                b.emit(Barrier())
                self._each(const(self.rounds), partial(self._add_all, block))
                b.emit(Barrier())
        if self.shared_row:
            self.workgroup.strided_loop(Span(ZERO, self.length, 0), self._put)
            b.emit(Barrier())  # before the next row comes

    def _fetch(self, place: Expr) -> None:
        with self.inliner.scope():
            self.b.store(self.shared_row, place, self.inliner.value(self.x, (*self.outer, place)))

    def _put(self, place: Expr) -> None:
        self.b.store("out", ix.add(self.begin, place), Load(self.shared_row, place, self.dtype))

    def _note(self, k: Expr, number: Expr, place: Expr, exists: Expr, at: Index) -> None:
        self.b.store(self.places, k, Select(exists, Cast(place, int32), _NONE, int32))
        self.b.store(self.values, k, self.inliner.value(self.value, at))

    def _each(self, turn: Expr, take: Take) -> None:
        """Emit what is done with each index that is left, in a turn."""
        b = self.b
        with b.loop(ZERO, const(self.each), kind="unroll", prefix="u") as k:
            place = b.let(Load(self.places, k, int32), "place")
            own = b.let(ix.add(ix.multiply(k, const(self.workgroup.size)), self.workgroup.item), "own")
            # The numbers of later turns are less than all before.
            number = b.let(Cast(ix.subtract(own, ix.multiply(turn, const(self.size))), int32), "number")
            with b.when(Apply("less_equal", (literal(0, int32), place), bool_)):
                take(k, own, b.let(Cast(place, INDEX), "at"), number)

    def _claim(self, k: Expr, own: Expr, at: Expr, number: Expr) -> None:
        self.b.store(self.names, at, number, combine="minimum")

    def _leads(self, at: Expr, number: Expr) -> Expr:
        return self.b.let(Apply("equal", (Load(self.names, at, int32), number), bool_), "first")

    def _total(self, k: Expr, to: Expr) -> Expr:
        return Apply(self.op, (Load(self.row, to, self.dtype), Load(self.values, k, self.dtype)), self.dtype)

    def _add(self, after: Expr, k: Expr, own: Expr, at: Expr, number: Expr) -> None:
        """Emit what the first index of a place adds; the others are left for the next turn."""
        b, leads = self.b, self._leads(at, number)
        with b.when(leads):
            to = b.let(ix.add(self.first, at), "to")
            b.store(self.row, to, self._total(k, to))
            b.store(self.places, k, _NONE)
        with b.when(Apply("logical_not", (leads,), bool_)):
            b.store(self.left, ZERO, after)

    def _add_all(self, block: Expr, k: Expr, own: Expr, at: Expr, number: Expr) -> None:
        """Emit what the first index of a place adds: all that is left for it, in order."""
        b = self.b
        with b.when(self._leads(at, number)):
            to = b.let(ix.add(self.first, at), "to")
            total = b.let(self._total(k, to), "total", mutable=True)
            named = b.let(Cast(at, int32), "named")
            with b.loop(ix.add(own, ONE), const(self.size), prefix="other") as other:
                same = Apply("equal", (Load(self.listed, other, int32), named), bool_)
                with b.when(same), self.inliner.scope():
                    where = ix.add(ix.multiply(block, const(self.size)), other)
                    where = b.let(ix.minimum(where, ix.subtract(self.count, ONE)), "where")
                    new = self.inliner.value(self.value, (*self.outer, where))
                    b.assign(total, Apply(self.op, (total, new), self.dtype))
            b.store(self.row, to, total)


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    return serves(request.root, target)


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    lower_row_scatter(request.task, launches, MODES.get(request.root.attrs["mode"]))


ROW_PER_WORKGROUP: Final = Schedule(
    name="scatter by a workgroup for each row",
    about="each index names its own row: the row is put together in local memory",
    kinds=frozenset({"scatter"}), applies=_applies, build=_build,
)  # fmt: skip
