"""The schedule of reductions in one loop, with values stored on the way and an epilogue.

Each of them goes over the same elements, once. Where there are too few results to keep the device busy, the
loop is cut into chunks, and a second kernel joins these and makes what is computed from the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Final

from ....tracing.sym_int import always_same
from ...fusion.canonicalize import DomainKernel
from ...ir import index_expr as ix
from ...ir.builder import Builder
from ...ir.index_expr import ZERO, const
from ...ir.inline import Index, Inliner
from ...ir.kernel_task import LaunchList
from ...ir.loop_ir import Cast, Expr, Load
from ...op_sets import REDUCTIONS
from ...target import Target
from ..pointwise.stores import aligned_slots, domain_lengths, store_offset
from ..pointwise.vector_access import vector_width
from ..pointwise.vectorize import VECTOR_DTYPES, VectorLoop, Vectors, row_vectors
from ..schedule import Schedule, ScheduleRequest, Verdict
from .blocked_sum import BlockedState, Nest, block_of, pairwise
from .chunks import Axis, is_window, plan_chunks, single_task_limit, workgroup_chunks
from .fold import LastWorkgroup, fold, join, reduce_by_workgroups
from .panel_grid import PanelGrid, panel_grid, plan_panels
from .reducer import ProductReducer, Reducer, State


class MultiReduction:
    """The common part of both schedules: the reductions, their outputs, and the kernel that joins chunks."""

    def __init__(self, fused: DomainKernel, steps: LaunchList) -> None:
        self.fused = fused
        self.steps = steps
        self.reductions = [n for n in fused.graph if n.op in REDUCTIONS]
        length = fused.domain[fused.reduced[0]]  # a search for places goes over one axis
        self.reducers = tuple(Reducer.of(n.op, n.inputs[0].spec.dtype).over(length) for n in self.reductions)
        self.reducer = ProductReducer(parts=self.reducers)
        self.kept_axes = [k for k in range(len(fused.domain)) if k not in fused.reduced]
        self.full = [o for o in fused.outputs if fused.spans_domain(o.node)]
        self.rows = [o for o in fused.outputs if not fused.spans_domain(o.node)]
        self.name = f"tb_{self.reductions[-1].op}_{len(fused.outputs)}"

    def write(self, b: Builder, inliner: Inliner, index: Index, lengths: Sequence[Expr]) -> None:
        """Emit the stores of the outputs that have an element for each of the domain."""
        values = b.all([inliner.at(o.node, index) for o in self.full])
        for k, (o, e) in enumerate(zip(self.full, values, strict=True)):
            name = b.buffer(f"full{k}", o.node.spec.dtype, writes=True)
            b.store(name, store_offset(b, name, o, index, lengths, self.fused), e)

    def end(
        self, b: Builder, inliner: Inliner, outer: Sequence[Expr], lengths: Sequence[Expr], state: State
    ) -> None:
        """Emit the epilogue: what is computed from the results."""
        index: list[Expr] = [ZERO] * len(self.fused.domain)
        for k, i in zip(self.kept_axes, outer, strict=True):
            index[k] = i
        for node, e in zip(self.reductions, self.reducer.result(state), strict=True):
            at = tuple(ZERO if n == 1 else i for n, i in zip(node.spec.shape, index, strict=True))
            inliner.bind(
                node, at, b.let(e if e.dtype is node.spec.dtype else Cast(e, node.spec.dtype), "row")
            )
        values = b.all([inliner.at(o.node, tuple(index)) for o in self.rows])
        for k, (o, e) in enumerate(zip(self.rows, values, strict=True)):
            name = b.buffer(f"out{k}" if k else "out", o.node.spec.dtype, writes=True)
            b.store(name, store_offset(b, name, o, tuple(index), lengths, self.fused), e)

    def outs(self) -> dict[str, int]:
        """Return the slots of all outputs by the names of their buffers."""
        full = {f"full{k}": o.slot for k, o in enumerate(self.full)}
        return full | {f"out{k}" if k else "out": o.slot for k, o in enumerate(self.rows)}

    def element(self, b: Builder, inliner: Inliner, index: Index, lengths: Sequence[Expr]) -> State:
        """Return what an element adds, having stored what is stored of it."""
        with inliner.scope():
            state: State = ()
            for r, node in zip(self.reducers, self.reductions, strict=True):
                state += r.element(inliner.at(node.inputs[0], index), index[self.fused.reduced[0]])
            if self.full:
                state = b.all(state)
                self.write(b, inliner, index, lengths)
            return state

    def temporaries(self, count: int) -> dict[str, int]:
        """Return new slots for the states of ``count`` chunks."""
        size = count * prod(self.fused.domain[k] for k in self.kept_axes)
        return {f"part{k}": self.steps.temporary(size, d) for k, d in enumerate(self.reducer.dtypes)}

    def join(self, parts: dict[str, int], count: int) -> None:
        """Append what joins the states of chunks, and makes the outputs of them."""
        b = Builder(f"{self.name}_rest")
        inliner, slots = self.fused.inliner(b)
        lengths = domain_lengths(b, inliner, self.fused)
        axes = [Axis(length=b.size("parts", count), value=count, reduced=True)]
        axes += [Axis(length=lengths[k], value=self.fused.domain[k], reduced=False) for k in self.kept_axes]

        def element(index: Index) -> State:
            at = ix.flatten(index, [a.length for a in axes])
            return tuple(
                Load(b.buffer(name, d), at, d) for name, d in zip(parts, self.reducer.dtypes, strict=True)
            )

        def finish(outer: Index, state: State) -> None:
            self.end(b, inliner, outer, lengths, state)

        launch = join(b, self.steps.target, self.reducer, axes, element, finish)
        self.steps.add(launch, {**slots, **parts, **self.outs()}, aligned_slots(self.fused, full=False))


class _ChunkedReductions(MultiReduction):
    """Rows to tasks, or results to work-items, in chunks where there are few."""

    def lower(self) -> None:
        fused, target = self.fused, self.steps.target
        b = Builder(self.name)
        inliner, slots = fused.inliner(b)
        lengths = domain_lengths(b, inliner, fused)
        axes = [
            Axis(length=lengths[k], value=n, reduced=k in fused.reduced) for k, n in enumerate(fused.domain)
        ]
        rows = (
            target.row_per_task
            and len(axes) - 1 in fused.reduced
            and fused.domain[-1] >= target.heuristics.row_min_length
        )
        floating = any(d.is_floating for d in self.reducer.dtypes)
        wanted = target.tasks_to_fill if rows else target.work_items_to_fill
        alone = single_task_limit(target, fused.graph, rows=rows)
        chunks = plan_chunks(axes, wanted, rows, target, floating=floating, alone=alone)
        split = workgroup_chunks(axes, target) if chunks is not None else None
        chunks = split or chunks

        def element(index: Index) -> State:
            return self.element(b, inliner, index, lengths)

        same = aligned_slots(fused)
        lanes = target.lanes if rows else 1
        vectors = row_vectors(target, [n.spec.dtype for n in fused.graph if n.op == "input"])
        if chunks is None:
            loops = fold(b, self.reducer, axes, element, lambda i, s: self.end(b, inliner, i, lengths, s),
                         target, lanes=lanes, vectors=vectors,
                         unrolled=is_window(target, [fused.domain[k] for k in fused.reduced]))  # fmt: skip
            ends = aligned_slots(fused, full=False) if not self.full else same
            self.steps.add(b.finish(loops, task=rows), {**slots, **self.outs()}, ends)
            return
        parts = self.temporaries(chunks.count)

        def keep(index: Index, state: State) -> None:
            at = ix.flatten(index, [b.size("chunks", chunks.count), *(lengths[k] for k in self.kept_axes)])
            for name, e in zip(parts, state, strict=True):
                b.store(b.buffer(name, e.dtype, writes=True), at, e)

        if split is not None and prod(fused.domain[k] for k in self.kept_axes) <= target.workgroup_counters:

            def part(index: Index) -> State:
                at = ix.flatten(
                    index, [b.size("chunks", chunks.count), *(lengths[k] for k in self.kept_axes)]
                )
                return tuple(
                    Load(b.buffer(name, d, shared=True), at, d)
                    for name, d in zip(parts, self.reducer.dtypes, strict=True)
                )

            def finish(outer: Index, state: State) -> None:
                with inliner.scope():
                    self.end(b, inliner, outer, lengths, state)

            whole = LastWorkgroup(part=part, finish=finish)
            inputs = [n.spec for n in fused.graph if n.op == "input"]
            dtypes = [spec.dtype for spec in inputs if always_same(spec.shape, fused.domain)]
            lanes = vector_width(target, fused.domain[-1], [*dtypes, *(o.node.spec.dtype for o in self.full)])
            launch = reduce_by_workgroups(
                b, target, self.reducer, axes, element, keep, split, ordered=True, whole=whole, lanes=lanes
            )
            self.steps.add(launch, {**slots, **parts, **self.outs()}, same if self.full else frozenset())
            return
        if split is not None:
            launch = reduce_by_workgroups(b, target, self.reducer, axes, element, keep, split, ordered=True)
        else:
            launch = b.finish(
                fold(b, self.reducer, axes, element, keep, target, chunks, lanes, vectors), task=rows
            )
        self.steps.add(launch, {**slots, **parts, **self.outs()}, same)
        self.join(parts, chunks.count)


class _ColumnPanels(MultiReduction):
    """A panel of columns to a work-item, which adds row after row to it, all read from end to end."""

    def lower(self) -> None:
        fused, target, limits = self.fused, self.steps.target, self.steps.target.heuristics
        b = Builder(f"{self.name}_panels")
        inliner, slots = fused.inliner(b)
        lengths = domain_lengths(b, inliner, fused)
        domain, over, inner = fused.domain, fused.reduced, fused.reduced[-1]
        chunks = plan_panels(
            domain, over, target.tasks_to_fill,
            width=limits.multi_panel_width, min_rows=limits.multi_panel_min_rows,
            max_rows=limits.multi_panel_max_rows,
        )  # fmt: skip
        grid = panel_grid(b, lengths, domain, over, chunks, limits.multi_panel_width)
        parts, blocks = self.temporaries(chunks.count), dict[str, int]()
        for name, d in zip(parts, self.reducer.dtypes, strict=True):
            b.buffer(name, d, writes=True)
        sums = self._blocked_states(b, grid, tuple(parts), blocks, chunks.count)

        def add(row: Expr, count: int = 1) -> None:
            def column(k: Expr) -> None:
                grid.index[-1] = ix.add(grid.base, k)
                state, added = self._load(grid, sums.state, k), list[State]()
                for j in range(count):
                    grid.index[inner] = ix.add(row, const(j))
                    added.append(self.element(b, inliner, tuple(grid.index), lengths))
                self._store(b, grid, sums.state, k, pairwise(b, self.reducer, state, added))

            self._loop(b, grid.columns, column)

        # Compilers do not know that rows of one output lie apart.
        code = len(list(fused.graph)) * limits.multi_panel_unroll
        unroll = limits.multi_panel_unroll if not self.full and code <= limits.multi_panel_max_code else 1
        outer = [Nest(grid.spans[k], partial(grid.index.__setitem__, k)) for k in over[:-1]]
        sums.nest_rows(outer, grid.spans[inner], add, unroll)
        named = {**{f"full{k}": o.slot for k, o in enumerate(self.full)}, **blocks}
        self.steps.add(b.finish(grid.loops, task=True), {**slots, **parts, **named}, aligned_slots(fused))
        self.join(parts, chunks.count)

    def _blocked_states(
        self, b: Builder, grid: PanelGrid, parts: tuple[str, ...], blocks: dict[str, int], chunks: int
    ) -> BlockedState[tuple[str, ...]]:
        """Emit the states of a panel before any row; ``blocks`` gets the slots of those of blocks."""

        def begin(names: Sequence[str]) -> None:
            self._loop(b, grid.columns, lambda k: self._store(b, grid, names, k, self.reducer.start()))

        def fresh() -> tuple[str, ...]:
            names = tuple([f"block{len(blocks) + k}" for k in range(len(self.reducer.dtypes))])
            slots = self.temporaries(chunks).values()
            for name, slot, d in zip(names, slots, self.reducer.dtypes, strict=True):
                blocks[b.buffer(name, d, writes=True)] = slot
            begin(names)
            return names

        def join(whole: Sequence[str], part: Sequence[str]) -> None:
            def column(k: Expr) -> None:
                states = self._load(grid, whole, k), self._load(grid, part, k)
                self._store(b, grid, whole, k, self.reducer.combine(b, *states))

            self._loop(b, grid.columns, column)

        begin(parts)
        block = block_of(self.reducer, self.steps.target.heuristics)
        return BlockedState(b=b, block=block, state=parts, fresh=fresh, join=join)

    def _store(self, b: Builder, grid: PanelGrid, names: Sequence[str], k: Expr, state: State) -> None:
        for name, e in zip(names, state, strict=True):
            b.store(name, ix.add(grid.begins, k), e)

    def _load(self, grid: PanelGrid, names: Sequence[str], k: Expr) -> State:
        at = ix.add(grid.begins, k)
        return tuple(Load(n, at, d) for n, d in zip(names, self.reducer.dtypes, strict=True))

    def _loop(self, b: Builder, stop: Expr, write: Callable[[Expr], None]) -> None:
        def emit(k: Expr) -> State:
            write(k)
            return ()

        target = self.steps.target
        wide = all(d in VECTOR_DTYPES for d in self.reducer.dtypes)
        lanes = max(target.lanes * 4 // self.reducer.dtypes[0].itemsize, 1)
        vectors = Vectors(ops=target.vector_ops, lanes=lanes, remainder=target.heuristics.vector_remainder)
        vector_loop = VectorLoop(vectors=vectors, emit=emit)
        if not (wide and vector_loop.loop(b, ZERO, stop)):
            with b.loop(ZERO, stop) as k:
                emit(k)


def _reduces_columns(request: ScheduleRequest, target: Target) -> Verdict:
    fused = request.rows
    last = len(fused.domain) - 1
    if not target.row_per_task:
        return "columns are reduced by work-items"
    wide = last not in fused.reduced and fused.domain[last] >= target.heuristics.row_min_length
    return (
        True
        if wide
        else f"reductions go over the last axis, or that is shorter than {target.heuristics.row_min_length}"
    )


def _build_panels(request: ScheduleRequest, launches: LaunchList) -> None:
    _ColumnPanels(request.rows, launches).lower()


def _always(request: ScheduleRequest, target: Target) -> Verdict:
    return True


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    _ChunkedReductions(request.rows, launches).lower()


MULTI_COLUMN_PANELS: Final = Schedule(
    name="multiple column reductions",
    about="reductions go down columns together: a task takes a panel of them, some rows at a time",
    kinds=frozenset({"reduction"}), applies=_reduces_columns, build=_build_panels,
)  # fmt: skip
MULTI_REDUCTION: Final = Schedule(
    name="multiple reductions",
    about="reductions go over the same elements together, in chunks where there are few results",
    kinds=frozenset({"reduction"}), applies=_always, build=_build,
)  # fmt: skip
