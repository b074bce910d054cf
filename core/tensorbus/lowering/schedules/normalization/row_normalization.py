"""Row normalization: passes over a row that stays near, as in softmax, layer norm and their derivatives.

A work-item takes a row and goes over it once for each reduction that needs an earlier one, and once for what
needs them all, while the row is in its cache. Reductions that do not wait for each other share a pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from ....backend_interface.graph import Node
from ....tracing.sym_int import always_same, near
from ...fusion.canonicalize import DomainKernel, Output
from ...ir import index_expr as ix
from ...ir.builder import Builder, Launch
from ...ir.index_expr import ZERO, const
from ...ir.inline import BufferRead, Index
from ...ir.kernel_task import LaunchList, Loops, parallel_loops
from ...ir.layout import Layout
from ...ir.loop_ir import Cast, Expr, Fetch
from ...op_sets import REDUCTIONS, calls_function
from ...target import Target
from ..pointwise.stores import aligned_slots, domain_lengths, elsewhere, is_nontemporal, store_offset
from ..pointwise.vectorize import VectorLoop, map_vectors, row_vectors
from ..reduction.blocked_sum import Span, block_of
from ..reduction.chunks import is_window
from ..reduction.reducer import ProductReducer, Reducer, State
from ..reduction.reduction_loop import Element, Prefetch, reduce_in_lanes, reduce_in_vectors, reduce_serially
from ..schedule import Schedule, ScheduleRequest, Verdict, rows_fill


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPass:
    """One pass: the reductions that it makes, what it stores, what it keeps for later passes and where."""

    reductions: tuple[Node, ...]
    stores: tuple[Output, ...]
    keeps: tuple[tuple[Node, Output], ...]


def lower_persistent_rows(fused: DomainKernel, steps: LaunchList) -> None:
    """Append the one launch of a group whose reductions are over its last axes."""
    RowKernel(fused, steps).lower()


class RowKernel:
    """The kernel of a group, as it is written: a work-item takes a whole row."""

    def __init__(self, fused: DomainKernel, steps: LaunchList) -> None:
        self.fused = fused
        self.steps = steps
        self.b = Builder(f"tb_rows_{fused.outputs[-1].node.op}")
        self.inliner, self.slots = fused.inliner(self.b)
        self.nodes = list(fused.graph)
        self.names = {o.slot: f"out{k}" if k else "out" for k, o in enumerate(fused.outputs)}
        self.waves = self._pass_numbers()
        self.passed = 0
        self.reread: set[int] = set()
        self.inside = elsewhere(self.nodes, picks=False)
        """The nodes that others read at places of their own: they have no element that is the row's."""

    def lower(self) -> None:
        """Append the launch."""
        b, fused = self.b, self.fused
        self.lengths = domain_lengths(b, self.inliner, fused)
        outer, loops = self.outer(min(fused.reduced))
        over = list(fused.reduced)
        row: Index = (*outer, *(ZERO for _ in over))
        for o in fused.outputs:
            b.buffer(self.names[o.slot], o.node.spec.dtype, writes=True)
        parts = self._passes()
        for number, part in enumerate(parts):
            self._define(row, number)
            if part.reductions:
                self._reduce(part, row, over)
            elif part.stores:
                self.store(part, row, over)
        self._define(row, len(self.nodes))
        self.end(row)
        # Elements that are stored before the last pass may be read again in a later one.
        early = [part for part in parts if part.reductions or part.stores][:-1]
        stores = any(o.slot >= 0 for part in parts for _, o in part.keeps)
        last = not any(part.stores for part in early) and not stores
        for slot, name in self.names.items():
            if slot < 0:
                b.buffers.pop(name, None)
        slots = {**self.slots, **{n: s for s, n in self.names.items() if s >= 0}}
        # A work-item has chosen elements of its row before the last pass, in which they may be written over.
        same = aligned_slots(fused, picks=not self.steps.target.row_per_task) if last else frozenset[int]()
        self.steps.add(self.finished(loops), slots, same)

    def outer(self, first: int) -> tuple[Index, Loops]:
        """Return the indices that number the rows, and the loops over them."""
        return parallel_loops(self.b, self.lengths[:first], self.fused.domain[:first])

    def finished(self, loops: Loops) -> Launch:
        """Return the launch: a work-item to a row."""
        fused = self.fused
        length = prod(fused.domain[min(fused.reduced) :])
        fills = {
            self.names[o.slot]: length for o in fused.outputs
            if fused.spans_domain(o.node) and Layout(o.slot, o.node.spec.shape, o.strides).is_contiguous
        }  # fmt: skip
        return self.b.finish(loops, task=self.steps.target.row_per_task, fills=fills)

    def end(self, row: Index) -> None:
        """Store what a row has one of."""
        for o in self.fused.outputs:
            if not self.fused.spans_domain(o.node):
                self.b.store(self.names[o.slot], self._place(o, row), self.inliner.value(o.node, row))

    def _pass_numbers(self) -> dict[int, int]:
        """Return for each node how many passes must be over before it can be computed."""
        waves: dict[int, int] = {}
        for node in self.nodes:
            before = max((waves[id(x)] for x in node.inputs), default=0)
            waves[id(node)] = before + 1 if node.op in REDUCTIONS else before
        return waves

    def _passes(self) -> list[RowPass]:
        """Return the passes in order."""
        fused, waves = self.fused, self.waves
        count = max(waves.values()) + 1
        reductions: list[list[Node]] = [[] for _ in range(count)]
        stores: list[list[Output]] = [[] for _ in range(count)]
        keeps: list[list[tuple[Node, Output]]] = [[] for _ in range(count)]
        for node in self.nodes:
            if node.op in REDUCTIONS:
                reductions[waves[id(node)] - 1].append(node)
        for o in fused.outputs:
            if fused.spans_domain(o.node):
                stores[waves[id(o.node)]].append(o)
        uses = [
            {id(n) for n in self._behind([r.inputs[0] for r in reductions[w]] + [o.node for o in stores[w]])}
            for w in range(count)
        ]
        free = [o for o in fused.outputs if fused.spans_domain(o.node)]
        if any(n.op == "pick" for n in self.nodes):  # which reads an element that another pass may have kept
            free = []
        moved = elsewhere(self.nodes)
        for node in reversed(self.nodes):
            used = [w for w in range(count) if id(node) in uses[w]]
            if len(used) < 2 or not self.keeps(node) or not all(n != 1 for n in node.spec.shape):
                continue
            if id(node) in moved:  # another row has it
                continue
            own = next((o for o in free if o.node is node), None)
            taken = own or next(
                (o for o in free if o.node.spec == node.spec and waves[id(o.node)] >= used[-1]
                 and o.node is not node), None,
            )  # fmt: skip
            near = self._register_cache(node) if own is None else None
            cache = near or taken
            if taken is not None:
                free.remove(taken)
                if near is None:
                    self.reread.add(taken.slot)
            if own is not None:
                keeps[waves[id(node)]].append((node, own))
                stores[waves[id(node)]].remove(own)
            elif cache is not None:
                keeps[used[0]].append((node, cache))
        return [
            RowPass(reductions=tuple(reductions[w]), stores=tuple(stores[w]), keeps=tuple(keeps[w]))
            for w in range(count)
        ]

    def keeps(self, node: Node) -> bool:
        """Return whether an element is kept for later passes, not made again."""
        return calls_function(node.op)

    def _register_cache(self, node: Node) -> Output | None:
        """Return an array of the work-item's own that keeps a node's row, where that is better than a result.

        Its slot is below 0. A result that goes past the caches would be read and written twice, and one of
        another dtype is none.
        """
        limits = self.steps.target.heuristics
        domain, dtype = self.fused.domain, node.spec.dtype
        alone = len(self.fused.reduced) == 1 and domain[-1] * dtype.itemsize <= limits.row_array_bytes
        vectors = map_vectors(self.steps.target, (dtype,)).ops
        other = any(
            o.node.spec.dtype is not dtype for o in self.fused.outputs if self.fused.spans_domain(o.node)
        )
        past = is_nontemporal(domain, dtype, limits)
        if not (alone and (other or past) and vectors and type(self) is RowKernel):
            return None
        slot = min(self.names, default=0)
        slot = min(slot, 0) - 1
        self.names[slot] = self.b.array(dtype, domain[-1])
        return Output(node=node, slot=slot, strides=(*(0 for _ in domain[:-1]), 1))

    def _behind(self, roots: Sequence[Node]) -> list[Node]:
        """Return what is computed for ``roots`` in their pass: reductions and what rows have end it."""
        behind: list[Node] = []
        seen: set[int] = set()
        stack = list(roots)
        while stack:
            node = stack.pop()
            if id(node) in seen or not self.fused.spans_domain(node):
                continue
            seen.add(id(node))
            behind.append(node)
            if node.op not in REDUCTIONS:
                stack.extend(node.inputs)
        return behind

    def _define(self, row: Index, number: int) -> None:
        """Compute what each row has once, as far as ``wave`` passes allow."""
        for node in self.nodes:
            plain = node.op not in REDUCTIONS and node.op not in ("input", "constant", "full")
            known = self.waves[id(node)] <= number and len(node.spec.shape) == len(row)
            known = known and id(node) not in self.inside
            if (
                plain
                and known
                and not self.fused.spans_domain(node)
                and not self.inliner.has_value(node, row)
            ):
                at = tuple(ZERO if n == 1 else i for n, i in zip(node.spec.shape, row, strict=True))
                value = self.inliner.value(node, at)
                self.inliner.bind(node, at, self.b.let(value, "row"))

    def _place(self, o: Output, index: Index) -> Expr:
        return store_offset(self.b, self.names[o.slot], o, index, self.lengths, self.fused)

    def emit(self, part: RowPass, index: Index) -> None:
        """Emit the stores of an element: all values first, so that operands may be overwritten."""
        elements = [
            (o, self.inliner.at(n, index)) for n, o in (*((o.node, o) for o in part.stores), *part.keeps)
        ]
        values = [e for _, e in elements]
        for (o, _), e in zip(elements, values if len(elements) == 1 else self.b.all(values), strict=True):
            # What later passes read again is better kept near.
            near = o.slot < 0 or o.slot in self.reread or part.keeps
            past = is_nontemporal(self.fused.domain, o.node.spec.dtype, self.steps.target.heuristics)
            nontemporal = not near and past and self._is_even()
            self.b.store(self.names[o.slot], self._place(o, index), e, nontemporal=nontemporal)

    def _is_even(self) -> bool:
        """Return whether rows are whole vectors, where results of others go past the caches by blocks."""
        target = self.steps.target
        return bool(target.vector_ops) or self.fused.domain[-1] % max(target.pointwise_vector_lanes, 1) == 0

    def _reduce(self, part: RowPass, row: Index, over: list[int]) -> None:
        b = self.b
        length = self.fused.domain[over[0]]  # a search for places goes over one axis
        parts = tuple(Reducer.of(r.op, r.inputs[0].spec.dtype).over(length) for r in part.reductions)
        reducer = parts[0] if len(parts) == 1 else ProductReducer(parts=parts)

        def element(index: Index) -> State:
            with self.inliner.scope():
                state: State = ()
                for r, node in zip(parts, part.reductions, strict=True):
                    state += r.element(self.inliner.at(node.inputs[0], index), index[over[0]])
                if part.stores or part.keeps:
                    state = b.all(state)
                    self.emit(part, index)
                return state

        state = self.reduce_row(reducer, row, over, element)
        for node, e in zip(part.reductions, reducer.result(state), strict=True):
            value = e if e.dtype is node.spec.dtype else b.let(Cast(e, node.spec.dtype), "row")
            self.inliner.bind(
                node, tuple(ZERO if n == 1 else i for n, i in zip(node.spec.shape, row, strict=True)), value
            )
        self.remember(part)

    def remember(self, part: RowPass) -> None:
        """Have what a pass kept read where it was stored."""
        for node, o in part.keeps:
            layout = Layout(o.slot, self.fused.domain, o.strides)
            name = self.names[o.slot]
            self.inliner.read(node, BufferRead(buffer=name, strides=f"{name}_", offset=name, layout=layout))

    def reduce_row(
        self, reducer: Reducer | ProductReducer, row: Index, over: list[int], element: Element
    ) -> State:  # fmt: skip
        """Emit a pass over the row; return what its elements come to."""
        b, target = self.b, self.steps.target
        bound = {k: Span(ZERO, self.lengths[k], self.fused.domain[k]) for k in over}
        block = block_of(reducer, target.heuristics)
        index = list(row)
        self.passed += 1
        ahead = self._ahead(row) if self.passed == 2 else None
        if not target.row_per_task or near(self.fused.domain[-1]) < target.heuristics.row_min_length:
            lengths = [self.fused.domain[k] for k in over]
            if is_window(target, lengths):
                bound = {k: Span(ZERO, const(n), n) for k, n in zip(over, lengths, strict=True)}
                return reduce_serially(b, reducer, index, over, bound, element, 0, "unroll")
            return reduce_serially(b, reducer, index, over, bound, element, block)
        read = [] if self._is_costly() else [n.spec.dtype for n in self.nodes if n.op == "input"]
        vectors = row_vectors(target, read)
        wide = reduce_in_vectors(b, reducer, index, over, bound, element, vectors, block, ahead)
        if wide is None and not target.vector_ops and self._is_costly():
            vectors = map_vectors(target, reducer.dtypes)
            wide = reduce_in_vectors(b, reducer, index, over, bound, element, vectors, block, ahead)
        if wide is not None:
            return wide
        lanes = target.lanes // 2 if self._is_costly() else target.lanes  # which takes registers
        return reduce_in_lanes(
            b, reducer, index, over, bound, element, max(lanes, 1), target.heuristics, ahead
        )

    def _is_costly(self) -> bool:
        """Return whether the pass that comes computes functions of each element."""
        roots = [n.inputs[0] for n in self.nodes if n.op in REDUCTIONS and self.waves[id(n)] == self.passed]
        return any(calls_function(n.op) for n in self._behind(roots))

    def _ahead(self, row: Index) -> Prefetch | None:
        """Return what fetches the next row, element by element; None where rows do not come from memory.

        Work-items go from row to row, and the first pass over each would wait for all of it.
        """
        limits = self.steps.target.heuristics
        fused, domain, b = self.fused, self.fused.domain, self.b
        if len(fused.reduced) != 1 or near(domain[-1]) > limits.row_prefetch_max_length:
            return None
        slots = {slot: name for name, slot in self.slots.items()}
        names = {
            slots[x.slot] for node in fused.graph if (x := fused.inputs.get(id(node))) is not None
            and always_same(x.shape, domain) and x.is_contiguous and not x.offset and x.late is None
            and is_nontemporal(domain, node.spec.dtype, limits) and slots[x.slot] in b.buffers
        }  # fmt: skip

        def fetch(k: Expr, count: int) -> None:
            at = ix.add(ix.flatten((*row[:-1], k), self.lengths), self.lengths[-1])
            for name in sorted(names):
                b.emit(Fetch(name, at, count))

        return fetch if names else None

    def store(self, part: RowPass, row: Index, over: list[int]) -> None:
        """Emit a pass over the row that only stores."""
        b, target = self.b, self.steps.target
        index = list(row)
        last = over[-1]

        def emit(k: Expr) -> State:
            index[last] = k
            with self.inliner.scope():
                self.emit(part, tuple(index))
            return ()

        def nest(axes: Sequence[int]) -> None:
            if axes[0] != last:
                with b.loop(ZERO, self.lengths[axes[0]]) as i:
                    index[axes[0]] = i
                    nest(axes[1:])
                return
            vectors = map_vectors(target, {o.node.spec.dtype for o in part.stores})
            vector_loop = VectorLoop(vectors=vectors, emit=emit)
            if not (target.row_per_task and vector_loop.loop(b, ZERO, self.lengths[last])):
                with b.loop(ZERO, self.lengths[last]) as k:
                    emit(k)

        nest(over)


def has_rows(request: ScheduleRequest, target: Target) -> Verdict:
    """Return whether a group goes over rows, of which there are enough, or must as its reductions wait."""
    if request.group.multi_pass:
        return True
    fused = request.rows
    fill = rows_fill(fused.domain, fused.reduced, target)
    return True if fill else "reductions do not go over rows, or these are too few to keep the device busy"


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    lower_persistent_rows(request.rows, launches)


PERSISTENT_ROWS: Final = Schedule(
    name="row normalization",
    about="each row is gone over by one task or work-item, as often as reductions wait for each other",
    kinds=frozenset({"reduction"}), applies=has_rows, build=_build,
)  # fmt: skip
