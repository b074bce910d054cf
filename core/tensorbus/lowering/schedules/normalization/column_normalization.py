"""Column normalization: passes down a panel of columns, as in a softmax over another axis than the last.

A work-item takes a panel of columns and goes down it once for each reduction that needs an earlier one, and
once for what needs them all, while the panel is in its cache. What the columns have found so far lies in
buffers, so that rows are read from end to end and everything is in vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Final

from ....backend_interface.graph import Node
from ...fusion.canonicalize import DomainKernel, Output
from ...fusion.fusion_groups import column_panel_width
from ...ir import index_expr as ix
from ...ir.index_expr import ZERO
from ...ir.inline import Index
from ...ir.kernel_task import LaunchList, Loops, parallel_loops
from ...ir.loop_ir import Cast, Expr, Load
from ...target import Target
from ..pointwise.stores import domain_lengths
from ..pointwise.vectorize import VECTOR_DTYPES, VectorLoop, Vectors
from ..reduction.blocked_sum import BlockedState, Nest, Span, block_of
from ..reduction.reducer import ProductReducer, Reducer, State
from ..schedule import Schedule, ScheduleRequest, Verdict
from .row_normalization import RowKernel, RowPass


def lower_column_normalization(fused: DomainKernel, steps: LaunchList) -> None:
    """Append the one launch of a group whose reductions are over other axes than the last."""
    _ColumnStrips(fused, steps).lower()


class _ColumnStrips(RowKernel):
    """A panel of columns to a work-item. ``found`` has the buffer of each node that columns have one of."""

    def lower(self) -> None:
        """Append the launch."""
        b, fused = self.b, self.fused
        self.lengths = domain_lengths(b, self.inliner, fused)
        self.computed: dict[int, str] = {}
        self.scratch: dict[str, int] = {}
        loops = self._begin(
            column_panel_width(fused.domain, fused.reduced, self.steps.target) or fused.domain[-1]
        )
        for o in fused.outputs:
            b.buffer(self.names[o.slot], o.node.spec.dtype, writes=True)
        parts = self._passes()
        for number, part in enumerate(parts):
            self._once(number)
            if part.reductions:
                self._add_up(part)
            elif part.stores:
                self._down(BlockedState.plain(self.b, ()), partial(self.emit, part))
            self.remember(part)
        self._once(len(parts))
        for o in fused.outputs:
            if not fused.spans_domain(o.node):
                self._across(partial(self._store, o))
        slots = {**self.slots, **{n: s for s, n in self.names.items()}, **self.scratch}
        self.steps.add(b.finish(loops, task=True), slots)

    def _begin(self, width: int) -> Loops:
        """Number the panels of columns; say where each begins, also in the results."""
        b, domain, lengths = self.b, self.fused.domain, self.lengths
        kept_axes = [k for k in range(len(domain) - 1) if k not in self.fused.reduced]
        count = -(-domain[-1] // width)
        numbers = [*(lengths[k] for k in kept_axes), b.size("panels", count)]
        outer, loops = parallel_loops(b, numbers, [*(domain[k] for k in kept_axes), count])
        wide = b.size("width", width)
        self.base = b.let(ix.multiply(outer[-1], wide), "base")
        self.columns = b.let(ix.minimum(ix.subtract(lengths[-1], self.base), wide), "columns")
        self.total = prod(domain[k] for k in kept_axes) * domain[-1]
        ends = [*(lengths[k] for k in kept_axes), lengths[-1]]
        self.begins = b.let(ix.flatten((*outer[:-1], self.base), ends), "begins")
        self.row: list[Expr] = [ZERO] * len(domain)
        for k, i in zip(kept_axes, outer[:-1], strict=True):
            self.row[k] = i
        return loops

    def _buffer(self, node: Node, kind: Reducer | None = None) -> str:
        """Return the new buffer of a node that each column has one of."""
        dtype = kind.dtypes[0] if kind is not None else node.spec.dtype
        name = f"found{len(self.scratch)}"
        self.scratch[name] = self.steps.temporary(self.total, dtype)
        return self.b.buffer(name, dtype, writes=True)

    def _across(self, write: Callable[[Index], None]) -> None:
        """Emit what is done with each column of the panel, in the row that is at hand."""

        def emit(k: Expr) -> State:
            index = (*self.row[:-1], ix.add(self.base, k))
            self.place = ix.add(self.begins, k)
            with self.inliner.scope():
                for node in self.nodes:
                    if id(node) in self.computed:
                        self._read(node, index)
                write(index)
            return ()

        b, target = self.b, self.steps.target
        dtypes = [node.spec.dtype for node in self.nodes if node.spec.dtype in VECTOR_DTYPES]
        size = max([4, *(dtype.itemsize for dtype in dtypes)])
        lanes = max(target.lanes * 4 // size, 1)
        vectors = Vectors(ops=target.vector_ops, lanes=lanes, remainder=target.heuristics.vector_remainder)
        vector_loop = VectorLoop(vectors=vectors, emit=emit)
        if not vector_loop.loop(b, ZERO, self.columns):
            with b.loop(ZERO, self.columns) as k:
                emit(k)

    def _read(self, node: Node, index: Index) -> None:
        """Have a node that a column has one of read where it lies."""
        name = self.computed[id(node)]
        dtype = self.b.buffers[name].dtype
        value: Expr = Load(name, self.place, dtype)
        element = value if dtype is node.spec.dtype else Cast(value, node.spec.dtype)
        at = tuple(ZERO if n == 1 else i for n, i in zip(node.spec.shape, index, strict=True))
        self.inliner.bind(node, at, element)

    def _down(self, sums: BlockedState[Sequence[str]], write: Callable[[Index], None]) -> None:
        """Emit what is done with each element of the panel, row by row."""
        over = self.fused.reduced
        spans = {k: Span(ZERO, self.lengths[k], self.fused.domain[k]) for k in over}
        loops = [Nest(spans[k], partial(self.row.__setitem__, k)) for k in over]
        sums.nest(loops, lambda: self._across(write), 1)
        for k in over:
            self.row[k] = ZERO

    def _add_up(self, part: RowPass) -> None:
        """Emit a pass down the panel for reductions that do not wait for each other."""
        b = self.b
        kinds = [Reducer.of(r.op, r.inputs[0].spec.dtype) for r in part.reductions]
        reducer = ProductReducer(parts=tuple(kinds))

        def load(names: Sequence[str]) -> State:
            return tuple(Load(name, self.place, d) for name, d in zip(names, reducer.dtypes, strict=True))

        def store(names: Sequence[str], state: State) -> None:
            for name, e in zip(names, state, strict=True):
                b.store(name, self.place, e)

        def fresh() -> Sequence[str]:
            names = [self._buffer(r, kind) for r, kind in zip(part.reductions, kinds, strict=True)]
            self._across(lambda index: store(names, reducer.start()))
            return names

        def join(whole: Sequence[str], own: Sequence[str]) -> None:
            self._across(lambda index: store(whole, reducer.combine(b, load(whole), load(own))))

        names = fresh()
        block = block_of(reducer, self.steps.target.heuristics)
        sums = BlockedState(b=b, block=block, state=names, fresh=fresh, join=join)

        def add(index: Index) -> None:
            new: State = ()
            for kind, node in zip(kinds, part.reductions, strict=True):
                new += kind.element(self.inliner.at(node.inputs[0], index), ZERO)
            values = b.all(reducer.combine(b, load(sums.state), new))
            if part.stores or part.keeps:
                self.emit(part, index)
            store(sums.state, values)

        self._down(sums, add)
        self.computed.update({id(r): name for r, name in zip(part.reductions, names, strict=True)})

    def _once(self, number: int) -> None:
        """Compute what each column has once, as far as ``wave`` passes allow, and elements need."""
        needed = {id(x) for user in self.nodes if self.fused.spans_domain(user) for x in user.inputs}
        nodes = [
            node for node in self.nodes
            if id(node) in needed and id(node) not in self.computed and self.waves[id(node)] <= number
            and node.op not in ("input", "constant", "full") and node.spec.dtype in VECTOR_DTYPES
            and len(node.spec.shape) == len(self.row) and not self.fused.spans_domain(node)
            and id(node) not in self.inside
        ]  # fmt: skip
        if not nodes:
            return
        names = [self._buffer(node) for node in nodes]

        def write(index: Index) -> None:
            values = self.b.all([self.inliner.at(node, index) for node in nodes])
            for name, e in zip(names, values, strict=True):
                self.b.store(name, self.place, e)

        self._across(write)
        self.computed.update({id(node): name for node, name in zip(nodes, names, strict=True)})

    def _store(self, o: Output, index: Index) -> None:
        """Store what a column has one of."""
        self.b.store(self.names[o.slot], self._place(o, index), self.inliner.at(o.node, index))


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    if not request.group.multi_pass:
        return "no reduction waits for another"
    if not request.reduces_columns:
        return "reductions go over the last axis"
    return True if target.row_per_task else "columns are reduced by work-items"


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    lower_column_normalization(request.kernel, launches)


COLUMN_NORMALIZATION: Final = Schedule(
    name="column normalization",
    about="a task goes down a panel of columns once for each reduction that waits, while it is in cache",
    kinds=frozenset({"reduction"}), applies=_applies, build=_build,
)  # fmt: skip
