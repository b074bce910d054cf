"""Column reduction by tasks: each takes a panel of columns and goes down it some rows at a time.

The panel stays in the work-item's cache, rows are read from end to end, and everything is in vectors. It lies
in the buffer of the chunks' states from the start: a driver was seen to take vectors of private arrays apart.
Devices of many small cores let each column be a work-item, and so do dtypes of which a language has no
vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from ....backend_interface.graph import Node
from ....dtypes.definition import DType, int32, int64
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ZERO, const
from ...ir.inline import Inliner
from ...ir.kernel_task import KernelTask, LaunchList
from ...ir.layout import Layout
from ...ir.loop_ir import Apply, Cast, Expr, Load, Select
from ..pointwise.vectorize import VECTOR_DTYPES, VectorLoop, Vectors
from .blocked_sum import BlockedState, Nest, block_of, pairwise
from .panel_grid import PanelGrid, panel_grid, plan_panels
from .reducer import OPS, Reducer, State


@dataclass(frozen=True, slots=True, kw_only=True)
class _PanelKernel:
    """A panel that is being written.

    In a search for a place the second part is the number of the row in its chunk, of ``counts``: few rows
    make a chunk, and so of floats all is in vectors of one kind.
    """

    b: Builder
    inliner: Inliner
    reducer: Reducer
    operand: Node
    dtype: DType
    counts: DType
    grid: PanelGrid
    vectors: Vectors
    block: int

    def loop(self, parts: Sequence[str], states: Callable[[Expr], State]) -> bool:
        """Emit what stores new states, column by column; False, and nothing, where that has no vectors."""

        def emit(k: Expr) -> State:
            with self.inliner.scope():
                for name, e in zip(parts, states(k), strict=True):
                    self.b.store(name, ix.add(self.grid.begins, k), e)
            return ()

        if not self.vectors.ops:  # the compiler makes the vectors
            with self.b.loop(ZERO, self.grid.columns) as k:
                emit(k)
            return True
        vector_loop = VectorLoop(vectors=self.vectors, emit=emit)
        return vector_loop.loop(self.b, ZERO, self.grid.columns)

    def begin(self, parts: Sequence[str]) -> bool:
        """Emit the states before any row."""
        return self.loop(
            parts, lambda k: self.reducer.start()[:1] if not self.reducer.is_arg_reduction else self._none()
        )

    def _states(self, parts: Sequence[str], k: Expr) -> State:
        at = ix.add(self.grid.begins, k)
        return tuple(Load(name, at, d) for name, d in zip(parts, (self.dtype, self.counts), strict=False))

    def join(self, whole: Sequence[str], part: Sequence[str]) -> bool:
        """Emit the addition of the states of a block to those of all rows."""

        def states(k: Expr) -> State:
            return self.reducer.combine(self.b, self._states(whole, k), self._states(part, k))

        return self.loop(whole, states)

    def _none(self) -> State:
        return self.reducer.least(), literal(0, self.counts)

    def add(self, parts: Sequence[str], axis: int, row: Expr, number: Expr, rows: int) -> bool:
        """Emit the addition of ``rows`` along ``axis`` from ``row`` on, the ``number``-th of its chunk.

        Of a sum they are added to each other first, by twos.
        """
        b, dtype = self.b, self.dtype
        first = b.let(Cast(number, self.counts), "row") if self.reducer.is_arg_reduction else None

        def states(k: Expr) -> State:
            states = self._states(parts, k)
            self.grid.index[-1] = ix.add(self.grid.base, k)
            added: list[State] = []
            for j in range(rows):
                self.grid.index[axis] = ix.add(row, const(j))
                new = self.reducer.element(self.inliner.value(self.operand, tuple(self.grid.index)), ZERO)
                if first is None:
                    added.append(new)
                    continue
                value, best, place = (b.let(e) for e in (new[0], *states))
                wins = b.let(self.reducer.beats(value, best), "wins")
                own = Apply("add", (first, literal(j, self.counts)), self.counts)
                states = Select(wins, value, best, dtype), Select(wins, own, place, self.counts)
            return pairwise(b, self.reducer, states, added)

        return self.loop(parts, states)

    def reduce(self, parts: Sequence[str], over: Sequence[int], unroll: int) -> list[str] | None:
        """Emit the reduction of all rows of the panel; return the names of the buffers of blocks' states.

        None: there are no vectors for some of it.
        """
        vectors: list[bool] = []
        blocks: list[str] = []

        def fresh() -> tuple[str, ...]:
            blocks.append(self.b.buffer(f"block{len(blocks)}", self.dtype, writes=True))
            vectors.append(self.begin(blocks[-1:]))
            return (blocks[-1],)

        sums = BlockedState[Sequence[str]](
            b=self.b, block=self.block, state=parts, fresh=fresh,
            join=lambda whole, part: vectors.append(self.join(whole, part)),
        )  # fmt: skip
        inner, rows = over[-1], self.grid.spans[over[-1]]

        def add(row: Expr, count: int = 1) -> None:
            vectors.append(self.add(sums.state, inner, row, ix.subtract(row, rows.start), count))

        outer = [Nest(self.grid.spans[k], partial(self.grid.index.__setitem__, k)) for k in over[:-1]]
        vectors.append(self.begin(parts))
        sums.nest_rows(outer, rows, add, unroll)
        return blocks if all(vectors) else None

    def store_places(self, first_row: Expr) -> None:
        """Emit the places that a search came to, counted from the first row of all."""
        self.b.buffer("part1", int64, writes=True)
        with self.b.loop(ZERO, self.grid.columns) as column:
            at = ix.add(self.grid.begins, column)
            number = Cast(Load("rows", at, self.counts), int64)
            self.b.store("part1", at, Apply("add", (Cast(first_row, int64), number), int64))


def reduce_in_panels(
    task: KernelTask, steps: LaunchList, reducer: Reducer, layout: Layout
) -> tuple[dict[str, int], int, bool] | None:
    """Append the first launch of a reduction that keeps the last axis; None, and nothing, for others.

    Returns the slots of the states' parts, chunk after chunk, how many chunks there are, and whether that is
    already the result.
    """
    target, limits = steps.target, steps.target.heuristics
    root, operand = task.root, task.root.inputs[0]
    shape, over = operand.spec.shape, root.attrs["axis"]
    dtype, is_arg_reduction, ops = reducer.dtypes[0], reducer.is_arg_reduction, target.vector_ops
    if ops and (dtype not in VECTOR_DTYPES or not (is_arg_reduction or OPS.get(reducer.op) in ops)):
        return None
    counts = dtype if dtype in VECTOR_DTYPES else int64 if dtype.itemsize == 8 else int32
    chunks = plan_panels(
        shape, over, 4 * target.tasks_to_fill,
        width=limits.panel_width, min_rows=limits.panel_min_rows, max_rows=limits.panel_max_rows,
    )  # fmt: skip
    b = Builder(f"tb_{root.op}_panels")
    inliner, slots = task.inliner(b)
    grid = panel_grid(b, inliner.lengths(operand), shape, over, chunks, limits.panel_width)
    names: tuple[str, ...] = ("part0", "rows") if is_arg_reduction else ("part0",)
    for name, d in zip(names, (dtype, counts), strict=False):
        b.buffer(name, d, writes=True)
    panel = _PanelKernel(
        b=b, inliner=inliner, reducer=reducer, operand=operand, dtype=dtype, counts=counts, grid=grid,
        block=block_of(reducer, limits),
        vectors=Vectors(
            ops=ops, lanes=max(target.lanes * 4 // dtype.itemsize, 1), remainder=limits.vector_remainder
        ),
    )  # fmt: skip
    unroll = max(1, min(limits.panel_unroll, limits.panel_max_code // len(list(task.graph))))
    if is_arg_reduction and not ops:
        unroll = 1  # a compiler finds no vectors in choices that wait for others
    blocks = panel.reduce(names, over, unroll)
    if blocks is None:
        return None
    if is_arg_reduction:
        panel.store_places(grid.spans[chunks.axis].start)
    count = chunks.count
    direct = count == 1 and not is_arg_reduction and root.spec.dtype is dtype and layout.is_contiguous
    total = count * prod(n for k, n in enumerate(shape) if k not in over)
    states = {"part0": task.out}
    if not direct:
        states = {f"part{k}": steps.temporary(total, d) for k, d in enumerate(reducer.dtypes)}
    scratch = {"rows": steps.temporary(total, counts)} if is_arg_reduction else {}
    scratch |= {name: steps.temporary(total, dtype) for name in blocks}
    steps.add(b.finish(grid.loops, task=True), {**slots, **states, **scratch})
    return states, count, direct
