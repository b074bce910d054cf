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
from ...ir.kernel_task import KernelTask, LaunchList, parallel_loops
from ...ir.layout import Layout
from ...ir.loop_ir import Apply, Cast, Expr, Load, Select
from ..pointwise.vectorize import WIDE, VectorLoop, Vectors
from .blocked_sum import BlockedState, Nest, Span, block_of, pairwise
from .reducer import OPS, Reducer, State


def plan_panels(shape: Sequence[int], over: Sequence[int], steps: LaunchList) -> tuple[int, int, int]:
    """Return the reduced axis to cut, into how many chunks, and of how many rows each."""
    limits = steps.target.heuristics
    axis = max(over, key=lambda k: (shape[k], -k))
    results = prod(n for k, n in enumerate(shape[:-1]) if k not in over)
    panels = -(-shape[-1] // limits.panel_width) * results
    count = max(-(-4 * steps.target.tasks_to_fill // panels), -(-shape[axis] // limits.panel_max_rows))
    count = max(1, min(count, shape[axis] // limits.panel_min_rows))
    size = -(-shape[axis] // count)
    return axis, -(-shape[axis] // size), size


@dataclass(frozen=True, slots=True, kw_only=True)
class _PanelKernel:
    """A panel that is being written: ``begins`` is where its states lie in the buffers of these.

    In a search for a place the second part is the number of the row in its chunk, of ``counts``: few rows
    make a chunk, and so of floats all is in vectors of one kind.
    """

    b: Builder
    inliner: Inliner
    reducer: Reducer
    operand: Node
    index: list[Expr]
    dtype: DType
    counts: DType
    base: Expr
    begins: Expr
    columns: Expr
    vectors: Vectors

    def loop(self, parts: Sequence[str], states: Callable[[Expr], State]) -> bool:
        """Emit what stores new states, column by column; False, and nothing, where that has no vectors."""

        def emit(k: Expr) -> State:
            with self.inliner.scope():
                for name, e in zip(parts, states(k), strict=True):
                    self.b.store(name, ix.add(self.begins, k), e)
            return ()

        if not self.vectors.ops:  # the compiler makes the vectors
            with self.b.loop(ZERO, self.columns) as k:
                emit(k)
            return True
        vector_loop = VectorLoop(vectors=self.vectors, emit=emit)
        return vector_loop.loop(self.b, ZERO, self.columns)

    def begin(self, parts: Sequence[str]) -> bool:
        """Emit the states before any row."""
        return self.loop(
            parts, lambda k: self.reducer.start()[:1] if not self.reducer.is_arg_reduction else self._none()
        )

    def _states(self, parts: Sequence[str], k: Expr) -> State:
        at = ix.add(self.begins, k)
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
            self.index[-1] = ix.add(self.base, k)
            added: list[State] = []
            for j in range(rows):
                self.index[axis] = ix.add(row, const(j))
                new = self.reducer.element(self.inliner.value(self.operand, tuple(self.index)), ZERO)
                if first is None:
                    added.append(new)
                    continue
                value, best, place = (b.let(e) for e in (new[0], *states))
                wins = b.let(self.reducer.beats(value, best), "wins")
                own = Apply("add", (first, literal(j, self.counts)), self.counts)
                states = Select(wins, value, best, dtype), Select(wins, own, place, self.counts)
            return pairwise(b, self.reducer, states, added)

        return self.loop(parts, states)


def reduce_in_panels(
    task: KernelTask, steps: LaunchList, reducer: Reducer, layout: Layout
) -> tuple[dict[str, int], int, bool] | None:
    """Append the first launch of a reduction that keeps the last axis; None, and nothing, for others.

    Returns the slots of the states' parts, chunk after chunk, how many chunks there are, and whether that is
    already the result.
    """
    limits = steps.target.heuristics
    root, operand = task.root, task.root.inputs[0]
    shape, over = operand.spec.shape, root.attrs["axis"]
    dtype, is_arg_reduction, ops = reducer.dtypes[0], reducer.is_arg_reduction, steps.target.vector_ops
    if ops and (dtype not in WIDE or not (is_arg_reduction or OPS.get(reducer.op) in ops)):
        return None
    counts = dtype if dtype in WIDE else int64 if dtype.itemsize == 8 else int32
    axis, count, size = plan_panels(shape, over, steps)
    direct = count == 1 and not is_arg_reduction and root.spec.dtype is dtype and layout.is_contiguous
    b = Builder(f"tb_{root.op}_panels")
    inliner, slots = task.inliner(b)
    lengths = inliner.lengths(operand)
    rest = [k for k in range(len(shape) - 1) if k not in over]
    panels = -(-shape[-1] // limits.panel_width)
    numbers = [b.size("chunks", count), *(lengths[k] for k in rest), b.size("panels", panels)]
    outer, loops = parallel_loops(b, numbers, [count, *(shape[k] for k in rest), panels])
    index: list[Expr] = [ZERO] * len(shape)
    for k, i in zip(rest, outer[1:-1], strict=True):
        index[k] = i
    base = b.let(ix.multiply(outer[-1], const(limits.panel_width)), "base")
    columns = b.let(ix.minimum(ix.subtract(lengths[-1], base), const(limits.panel_width)), "wide")
    names: tuple[str, ...] = ("part0", "rows") if is_arg_reduction else ("part0",)
    for name, d in zip(names, (dtype, counts), strict=False):
        b.buffer(name, d, writes=True)
    panel = _PanelKernel(
        b=b, inliner=inliner, reducer=reducer, operand=operand, index=index, dtype=dtype,
        base=base, columns=columns,
        begins=b.let(ix.flatten((*outer[:-1], base), [*numbers[:-1], lengths[-1]]), "begins"),
        counts=counts,
        vectors=Vectors(
            ops=ops, lanes=max(steps.target.lanes * 4 // dtype.itemsize, 1), remainder=limits.vector_remainder
        ),
    )  # fmt: skip
    many = max(1, min(limits.panel_unroll, limits.panel_max_code // len(list(task.graph))))
    many = (
        1 if is_arg_reduction and not ops else many
    )  # a compiler finds no vectors in choices that wait for others
    spans = {k: Span(ZERO, lengths[k], shape[k]) for k in over}
    from_row: Expr = ZERO
    if count > 1:
        from_row = b.let(ix.multiply(outer[0], b.size("chunk", size)), "from")
        stop = b.let(ix.minimum(ix.add(from_row, b.size("chunk", size)), lengths[axis]), "stop")
        spans[axis] = Span(from_row, stop, size)
    vectors: list[bool] = []
    blocks: list[str] = []

    def fresh() -> tuple[str, ...]:
        blocks.append(b.buffer(f"block{len(blocks)}", dtype, writes=True))
        vectors.append(panel.begin(blocks[-1:]))
        return (blocks[-1],)

    sums = BlockedState(
        b=b, block=block_of(reducer, limits), state=names, fresh=fresh,
        join=lambda whole, part: vectors.append(panel.join(whole, part)),
    )  # fmt: skip

    def add_row() -> None:
        inner, (start, stop, most) = over[-1], spans[over[-1]]

        def add(row: Expr, rows: int = 1) -> None:
            vectors.append(panel.add(sums.state, inner, row, ix.subtract(row, start), rows))

        even = start
        if many > 1:
            whole = ix.multiply(ix.quotient(ix.subtract(stop, start), const(many)), const(many))
            even = b.let(ix.add(start, whole), "even")
            sums.loop(Span(start, even, most), partial(add, rows=many), step=many)
        sums.loop(Span(even, stop, many - 1 if many > 1 else most), add)

    chain = max(spans[over[-1]].most // many + many - 1, 1)
    outer_loops = [Nest(spans[k], partial(index.__setitem__, k)) for k in over[:-1]]
    vectors.append(panel.begin(names))
    sums.nest(outer_loops, add_row, chain)
    if not all(vectors):
        return None
    if is_arg_reduction:
        b.buffer("part1", int64, writes=True)
        with b.loop(ZERO, columns) as column:
            at = ix.add(panel.begins, column)
            number = Cast(Load("rows", at, counts), int64)
            b.store("part1", at, Apply("add", (Cast(from_row, int64), number), int64))
    total = count * prod(shape[k] for k in rest) * shape[-1]
    states = {"part0": task.out}
    if not direct:
        states = {f"part{k}": steps.temporary(total, d) for k, d in enumerate(reducer.dtypes)}
    scratch = {"rows": steps.temporary(total, counts)} if is_arg_reduction else {}
    scratch |= {name: steps.temporary(total, dtype) for name in blocks}
    steps.add(b.finish(loops, task=True), {**slots, **states, **scratch})
    return states, count, direct
