"""Column reduction on GPUs: a workgroup takes vectors of columns side by side.

Its work-items share the rows, a stretch for each, of which they keep what they find in registers; the memory
of the workgroup joins their stretches. Where more than one workgroup goes down a column, a second kernel
joins theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

from ....tracing.sym_int import always_same
from ...fusion.canonicalize import DomainKernel
from ...ir import index_expr as ix
from ...ir.builder import Builder, Launch
from ...ir.index_expr import ZERO, const
from ...ir.inline import Index
from ...ir.kernel_task import LaunchList
from ...ir.loop_ir import INDEX, Array, Barrier, Const, Expr, Load, Var
from ...op_sets import REDUCTIONS, calls_function
from ...target import Target
from ..pointwise.stores import aligned_slots, domain_lengths
from ..pointwise.vector_access import emit_vector, vector_width
from ..schedule import Schedule, ScheduleRequest, Verdict
from .blocked_sum import BlockedState, Span, block_of, registers
from .multi_reduction import MultiReduction
from .reducer import ProductReducer, State


def lower_columns_by_workgroups(fused: DomainKernel, steps: LaunchList) -> None:
    """Append the launches of a group whose reductions do not wait for each other, all over one axis."""
    _WorkgroupColumns(fused, steps).lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnTiling:
    """The shape of workgroups over columns: ``wide`` work-items side by side, ``deep`` one below the other.

    A work-item goes down ``lanes`` columns, ``each`` rows of them, of which it asks for ``ahead`` at a time;
    ``count`` workgroups stand one below the other.
    """

    lanes: int
    wide: int
    deep: int
    each: int
    count: int
    ahead: int

    @classmethod
    def of(
        cls, rows: int, vectors: int, around: int, lanes: int, ahead: int, target: Target, states: int,
        whole: bool = False,
    ) -> _ColumnTiling:  # fmt: skip
        """Return how ``rows`` of so many vectors are shared, ``around`` times.

        ``states`` are the bytes that are kept of a column; ``whole``: a workgroup goes down all rows.
        """
        limits = target.heuristics
        size = limits.column_workgroup
        while size > 1 and size * (lanes + 1) * states > target.local_memory:
            size //= 2
        alone = vectors * around >= target.work_items_to_fill // 2 and rows <= limits.column_max_rows
        deep = (
            1 if alone else int(min(1 << (-(-rows // ahead) - 1).bit_length(), limits.column_max_depth, size))
        )
        wide = size // deep
        beside = -(-vectors // wide) * around
        wanted = target.work_items_to_fill // (size * beside)
        count = (
            max(min(wanted, rows // (deep * ahead)), -(-rows // (deep * limits.column_max_rows)), 1)
            if not whole
            else 1
        )
        each = -(-rows // (count * deep * ahead)) * ahead  # what is left behind whole turns waits row by row
        count = -(-rows // (each * deep))
        return cls(lanes=lanes, wide=wide, deep=deep, each=each, count=count, ahead=ahead)

    @property
    def size(self) -> int:
        """The number of work-items of a group."""
        return self.wide * self.deep

    @property
    def columns(self) -> int:
        """The number of columns of a group."""
        return self.wide * self.lanes


Take = Callable[[Index, Expr, Expr, State], State]
"""Returns a state with one more element: gets the indices around, the row, the column and the state."""
Finish = Callable[[Expr, Index, Expr, State], None]
"""Stores a result: gets the workgroup's number below others, the indices around, the column, the state."""
PartReader = Callable[[Expr, Index, Expr], State]
"""Returns what a workgroup has stored: gets its number, the indices around, the column."""


@dataclass(slots=True, kw_only=True)
class _ColumnKernel:
    """The workgroups of a kernel, as it is written: ``rows`` and ``columns`` are how many of them there are.

    ``around`` are the lengths, with their values, of axes that others are repeated along; ``count`` is the
    value of ``columns``. ``block``: see ``blocked_sum.block_of``.
    """

    b: Builder
    cut: _ColumnTiling
    reducer: ProductReducer
    around: tuple[tuple[Expr, int], ...]
    rows: Expr
    columns: Expr
    count: int
    join_ahead: int
    block: int
    item: Var = field(default_factory=lambda: Var("i0", INDEX))
    group: Var = field(default_factory=lambda: Var("i1", INDEX))
    arrays: list[str] = field(default_factory=list)
    """The work-item's own states, one of each column of its vector."""
    shared: list[Array] = field(default_factory=list)
    below: Expr = ZERO
    """Which of the workgroups one below the other this one is."""
    outer: Index = ()
    workgroup: Expr = ZERO
    beside: Expr = ZERO
    walker: Expr = ZERO
    first: Expr = ZERO
    """The first of the work-item's columns."""

    def launch(self, take: Take, finish: Finish, whole: tuple[PartReader, Finish] | None = None) -> Launch:
        """Return the launch; ``take`` makes states, ``finish`` stores what they come to.

        ``whole`` is done by the last of the workgroups that go down the same columns: it gives what each of
        them stored of a column, and stores what these come to.
        """
        b, cut, item = self.b, self.cut, self.item
        workgroups = -(-self.count // cut.columns)
        numbers = [b.size("below", cut.count), *(e for e, _ in self.around), b.size("workgroups", workgroups)]
        place = ix.unflatten(self.group, numbers)
        self.below, *outer, self.workgroup = (
            i if isinstance(i, Var | Const) else b.let(i, "i") for i in place
        )
        self.outer = tuple(outer)
        self.beside = b.let(ix.modulo(item, const(cut.wide)), "beside")
        self.walker = b.let(ix.quotient(item, const(cut.wide)), "walker")
        vector = ix.add(ix.multiply(self.workgroup, const(cut.wide)), self.beside)
        self.first = b.let(ix.multiply(vector, const(cut.lanes)), "first")
        self.arrays = [b.array(d, cut.lanes) for d in self.reducer.dtypes]
        self._loop(take)
        if cut.deep == 1:
            with b.when(ix.less(self.first, self.columns)):
                self._each([
                    lambda u: finish(
                        self.below, self.outer, ix.add(self.first, u), b.all(self._states(self.arrays, u))
                    )
                ])  # fmt: skip
        else:
            self._join(finish)
        if whole is not None:
            self._join_groups(ix.flatten((*self.outer, self.workgroup), numbers[1:]), numbers[0], *whole)
        groups = cut.count * prod(n for _, n in self.around) * workgroups
        launch = b.finish([(item, const(cut.size), cut.size), (self.group, b.size("groups", groups), groups)])
        return replace(
            launch, kernel=replace(launch.kernel, body=(*self.shared, *launch.kernel.body), group=cut.size)
        )

    def _states(self, names: Sequence[str], at: Expr) -> State:
        return tuple(Load(n, at, d) for n, d in zip(names, self.reducer.dtypes, strict=True))

    def _store(self, names: Sequence[str], at: Expr, state: State) -> None:
        for name, e in zip(names, state, strict=True):
            self.b.store(name, at, e)

    def _each(self, rows: Sequence[Callable[[Expr], None]]) -> None:
        """Emit what is done with each of a work-item's columns."""
        if self.cut.lanes > 1:
            emit_vector(self.b, self.cut.lanes, *rows)
        else:
            for row in rows:
                row(ZERO)

    def _loop(self, take: Take) -> None:
        """Emit the loop of a work-item down its stretch."""
        b, cut = self.b, self.cut
        each = b.size("each", cut.each)
        stretch = ix.add(ix.multiply(self.below, const(cut.deep)), self.walker)
        start = b.let(ix.minimum(ix.multiply(stretch, each), self.rows), "start")
        stop = b.let(ix.minimum(ix.add(start, each), self.rows), "stop")

        def lanes(put: Callable[[Expr], None]) -> None:
            with b.loop(ZERO, const(cut.lanes), kind="unroll", prefix="u") as u:
                put(u)

        def fresh() -> list[str]:
            arrays = [b.array(d, cut.lanes) for d in self.reducer.dtypes]
            lanes(lambda u: self._store(arrays, u, self.reducer.start()))
            return arrays

        def join(whole: list[str], part: list[str]) -> None:
            def one(u: Expr) -> None:
                both = self._states(whole, u), self._states(part, u)
                self._store(whole, u, self.reducer.combine(b, *both))

            lanes(one)

        sums = BlockedState(b=b, block=self.block, state=self.arrays, fresh=fresh, join=join)

        def adding(row: Expr) -> Callable[[Expr], None]:
            def one(u: Expr) -> None:
                state = self._states(sums.state, u)
                self._store(sums.state, u, take(self.outer, row, ix.add(self.first, u), state))

            return one

        lanes(lambda u: self._store(self.arrays, u, self.reducer.first(start)))
        with b.when(ix.less(self.first, self.columns)):
            turns = ix.quotient(ix.subtract(stop, start), const(cut.ahead))
            even = b.let(ix.add(start, ix.multiply(turns, const(cut.ahead))), "even")
            sums.loop(
                Span(start, even, cut.each),
                lambda row: self._each([adding(ix.add(row, const(k))) for k in range(cut.ahead)]),
                step=cut.ahead, chain=cut.ahead,
            )  # fmt: skip
            with b.loop(even, stop) as row:
                self._each([adding(row)])

    def _join(self, finish: Finish) -> None:
        """Emit what joins the stretches of each column of a workgroup, a work-item for each of them."""
        b, cut = self.b, self.cut
        # What the work-items of a column have found lies apart by more than all columns: in other banks.
        apart = cut.columns + (cut.wide if cut.lanes > 1 else 0)
        self.shared = [Array(b.fresh("partial"), d, cut.deep * apart, "shared") for d in self.reducer.dtypes]
        names = [a.name for a in self.shared]
        row = b.let(ix.add(ix.multiply(self.walker, const(apart)), self.beside), "row")
        with b.loop(ZERO, const(cut.lanes), kind="unroll", prefix="u") as u:
            self._store(names, ix.add(row, ix.multiply(u, const(cut.wide))), self._states(self.arrays, u))
        b.emit(Barrier())

        def one(own: Expr, column: Expr) -> None:
            lane = ix.multiply(ix.modulo(own, const(cut.lanes)), const(cut.wide))
            place = b.let(ix.add(lane, ix.quotient(own, const(cut.lanes))), "place")
            states = b.all(self._states(names, place))
            for k in range(1, cut.deep):
                other = b.all(self._states(names, ix.add(place, const(k * apart))))
                states = b.all(self.reducer.combine(b, states, other))
            finish(self.below, self.outer, column, states)

        self._columns(one)
        b.emit(Barrier())  # before the next columns' values come

    def _columns(self, one: Callable[[Expr, Expr], None]) -> None:
        """Emit what a work-item does with a column of the workgroup: gets its number there, and among all."""
        b, cut = self.b, self.cut
        for turn in range(-(-cut.columns // cut.size)):
            own = b.let(ix.add(self.item, const(turn * cut.size)), "own")
            column = b.let(ix.add(ix.multiply(self.workgroup, const(cut.columns)), own), "column")
            with b.when(ix.less(own, const(cut.columns))), b.when(ix.less(column, self.columns)):
                one(own, column)

    def _join_groups(self, counter: Expr, count: Expr, part: PartReader, finish: Finish) -> None:
        """Emit what the last workgroup that goes down the same columns makes of what all have stored."""
        b, ahead = self.b, self.join_ahead
        turns = self.cut.count // ahead * ahead

        def one(_: Expr, column: Expr) -> None:
            state = tuple(b.let(e, "all", mutable=True) for e in self.reducer.start())
            sums = registers(b, self.reducer, state, self.block)

            def take(belows: Sequence[Expr]) -> None:
                others = [b.all(part(below, self.outer, column)) for below in belows]
                own = sums.state
                for other in others:
                    for var, e in zip(own, b.all(self.reducer.combine(b, own, other)), strict=True):
                        b.assign(var, e)

            if turns:
                sums.loop(
                    Span(ZERO, const(turns), turns),
                    lambda below: take([ix.add(below, const(k)) for k in range(ahead)]),
                    step=ahead, chain=ahead,
                )  # fmt: skip
            if turns < self.cut.count:
                take([const(k) for k in range(turns, self.cut.count)])
            finish(ZERO, self.outer, column, state)

        with b.when(b.arrive(counter, count)):
            self._columns(one)


class _WorkgroupColumns(MultiReduction):
    def lower(self) -> None:
        limits = self.steps.target.heuristics
        fused, target = self.fused, self.steps.target
        domain, (axis,) = fused.domain, fused.reduced
        kinds = [n.inputs[0].spec.dtype for n in self.reductions]
        inputs = [n.spec for n in fused.graph if n.op == "input"]
        read = [spec.dtype for spec in inputs if always_same(spec.shape, domain)]
        lanes = vector_width(target, domain[-1], [*kinds, *read])
        busy = any(calls_function(n.op) for n in fused.graph)
        ahead = limits.column_read_ahead if busy or self.full else 2 * limits.column_read_ahead
        beside = prod(domain[k] for k in self.kept_axes[:-1])
        cut = _ColumnTiling.of(domain[axis], domain[-1] // lanes, beside, lanes, ahead, target, self._bytes())
        b = Builder(self.name)
        inliner, slots = fused.inliner(b)
        lengths = domain_lengths(b, inliner, fused)
        around = tuple((lengths[k], domain[k]) for k in self.kept_axes[:-1])
        groups = _ColumnKernel(
            b=b, cut=cut, reducer=self.reducer, around=around, rows=lengths[axis], columns=lengths[-1],
            count=domain[-1], join_ahead=limits.column_join_read_ahead, block=block_of(self.reducer, limits),
        )  # fmt: skip

        def take(outer: Index, row: Expr, column: Expr, state: State) -> State:
            index = [*outer, column]
            index.insert(axis, row)
            with inliner.scope():
                element = self.element(b, inliner, tuple(index), lengths)
                return b.all(self.reducer.step(b, state, element))

        def finish(_: Expr, outer: Index, column: Expr, state: State) -> None:
            with inliner.scope():
                self.end(b, inliner, (*outer, column), lengths, state)

        outs = {f"full{k}": o.slot for k, o in enumerate(self.full)}
        # The end of a column comes behind all that is read for it, and reads the column's own elements.
        # Outputs of the whole domain are stored before it: larger than what it reads, or elsewhere.
        same = aligned_slots(fused)
        if not self.full or domain[axis] > 1:
            same |= aligned_slots(fused, full=False)
        if cut.count == 1:
            launch = groups.launch(take, finish)
            self.steps.add(launch, {**slots, **self.outs()}, same)
            return
        parts = self.temporaries(cut.count)
        joins = beside * -(-domain[-1] // cut.columns) <= target.workgroup_counters
        for name, dtype in zip(parts, self.reducer.dtypes, strict=True):
            b.buffer(name, dtype, writes=True, shared=joins)

        def place(below: Expr, outer: Index, column: Expr) -> Expr:
            numbers = [b.size("below", cut.count), *(e for e, _ in around), lengths[-1]]
            return b.let(ix.flatten((below, *outer, column), numbers), "at")

        def keep(below: Expr, outer: Index, column: Expr, state: State) -> None:
            at = place(below, outer, column)
            for name, e in zip(parts, state, strict=True):
                b.store(name, at, e)

        def part(below: Expr, outer: Index, column: Expr) -> State:
            at = place(below, outer, column)
            return tuple(Load(n, at, d) for n, d in zip(parts, self.reducer.dtypes, strict=True))

        if joins:
            launch = groups.launch(take, keep, (part, finish))
            self.steps.add(launch, {**slots, **parts, **self.outs()}, same)
            return
        launch = groups.launch(take, keep)
        self.steps.add(launch, {**slots, **parts, **outs}, aligned_slots(fused))
        self._rest(parts, cut.count)

    def _bytes(self) -> int:
        """Return how many bytes are kept of a column."""
        return sum(d.itemsize for d in self.reducer.dtypes)

    def _rest(self, parts: dict[str, int], count: int) -> None:
        """Append what joins the stretches of each result, and makes the outputs of it."""
        limits = self.steps.target.heuristics
        fused = self.fused
        b = Builder(f"{self.name}_rest")
        inliner, slots = fused.inliner(b)
        lengths = domain_lengths(b, inliner, fused)
        total = prod(fused.domain[k] for k in self.kept_axes)
        columns = b.size("places", total)
        cut = _ColumnTiling.of(
            count, total, 1, 1, limits.column_read_ahead, self.steps.target, self._bytes(), whole=True
        )

        def take(_: Index, row: Expr, column: Expr, state: State) -> State:
            at = b.let(ix.add(ix.multiply(row, columns), column), "at")
            part = [Load(b.buffer(n, d), at, d) for n, d in zip(parts, self.reducer.dtypes, strict=True)]
            return b.all(self.reducer.combine(b, state, b.all(part)))

        def finish(_: Expr, outer: Index, column: Expr, state: State) -> None:
            index = ix.unflatten(column, [lengths[k] for k in self.kept_axes])
            self.end(b, inliner, tuple(index), lengths, state)

        rest = _ColumnKernel(
            b=b, cut=cut, reducer=self.reducer, around=(), rows=b.size("chunks", count), columns=columns,
            count=total, join_ahead=limits.column_join_read_ahead, block=block_of(self.reducer, limits),
        )  # fmt: skip
        launch = rest.launch(take, finish)
        rows = {f"out{k}" if k else "out": o.slot for k, o in enumerate(self.rows)}
        self.steps.add(launch, {**slots, **parts, **rows}, aligned_slots(fused, full=False))


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    """Reductions go over one axis of a group that is not the last, in vectors of the last."""
    limits = target.heuristics
    if not target.subgroup_size:
        return "work-items have no subgroups"
    if request.group.multi_pass:
        return "reductions wait for each other"
    fused = request.kernel
    domain, over = fused.domain, fused.reduced
    if not over or len(over) != 1 or len(domain) - 1 in over:
        return "reductions do not go over one axis that is not the last"
    if prod(domain) < limits.access_min_elements:
        return f"there are fewer than {limits.access_min_elements} elements"
    kinds = [n.inputs[0].spec.dtype for n in fused.graph if n.op in REDUCTIONS]
    return True if vector_width(target, domain[-1], kinds) > 1 else "columns make no whole vectors"


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    lower_columns_by_workgroups(request.kernel, launches)


COLUMNS_BY_WORKGROUPS: Final = Schedule(
    name="column reduction by workgroups",
    about="a workgroup takes vectors of columns side by side, its work-items share the rows",
    kinds=frozenset({"reduction"}), applies=_applies, build=_build,
)  # fmt: skip
