"""Row normalization on GPUs: a workgroup goes over a row, and reduces across its work-items.

Work-items take vectors of neighbours where the device moves them at once. All else is as where one work-item
takes a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final

from ....backend_interface.graph import Node
from ....dtypes.definition import DType, float32
from ....tracing.sym_int import always_same, is_open, known_divisor, near
from ...fusion.canonicalize import DomainKernel, Output
from ...ir import index_expr as ix
from ...ir.builder import Launch
from ...ir.index_expr import ONE, ZERO, const
from ...ir.inline import Index
from ...ir.kernel_task import LaunchList, Loops
from ...ir.loop_ir import INDEX, Array, Const, Expr, Load, Var
from ...op_sets import REDUCTIONS
from ...target import Target
from ..pointwise.vector_access import emit_vector, vector_width
from ..reduction.blocked_sum import BlockedState, Span, block_of, registers
from ..reduction.reducer import ProductReducer, Reducer, State
from ..reduction.reduction_loop import Element
from ..schedule import Schedule, ScheduleRequest, Verdict
from ..workgroup import Workgroup
from .row_normalization import RowKernel, RowPass, has_rows


def lower_row_per_workgroup(fused: DomainKernel, steps: LaunchList) -> None:
    """Append the one launch of a group whose reductions are over its last axes, if these are long enough."""
    _WorkgroupRows(fused, steps).lower()


class _WorkgroupRows(RowKernel):
    """A workgroup to a row: its work-items stride through the row, then reduce across the workgroup."""

    def outer(self, first: int) -> tuple[Index, Loops]:
        limits = self.steps.target.heuristics
        b, domain = self.b, self.fused.domain
        length, subgroup, items = (
            near(prod(domain[first:])),
            self.steps.target.subgroup_size,
            self.steps.target.work_items_to_fill,
        )
        self.lanes = self._vector_lanes()
        if self.lanes > 1:
            few = 1 << max(length // self.lanes // limits.row_vectors - 1, 0).bit_length()
            self.workgroup_size = max(limits.row_min_length, min(limits.workgroup_max, few))
        else:
            self.workgroup_size = max(
                limits.row_min_length, min(limits.workgroup_max, 1 << (length // 4).bit_length())
            )
        rows, most = prod(domain[:first]), self.steps.target.max_workgroup
        # Few rows have more work-items each, as long as every work-item has some vectors. So have long ones
        # that are read again: fewer of them at a time find room in the cache.
        again = length > limits.row_in_registers_max_length and self._is_multi_pass()
        while (
            self.workgroup_size < most
            and 2 * self.workgroup_size * limits.row_vectors <= length // self.lanes
            and (again or near(rows) * self.workgroup_size < items)
        ):
            self.workgroup_size *= 2
        while (
            not subgroup
            and self.workgroup_size > limits.row_min_length
            and self.workgroup_size * self._carried() > self.steps.target.local_memory
        ):
            self.workgroup_size //= 2
        self.group = Workgroup.of(b, self.workgroup_size, self.steps.target)
        self.workgroup_size = self.group.size
        self.item = self.group.item
        count = prod(domain[first:]) // self.lanes
        row = Var("i1", INDEX)
        self.total = b.size("row", prod(domain[first:])) if len(domain) - first > 1 else self.lengths[first]
        self.count = self.total if self.lanes == 1 else b.size("vectors", count)
        self.even = known_divisor(count) % self.workgroup_size == 0
        self._count_turns(count)
        self.arrays: dict[int, tuple[str, DType]] = {}
        self.cached: list[Node] = []
        rows_of = ix.unflatten(row, self.lengths[:first])
        index = tuple(i if isinstance(i, Var | Const) else b.let(i, "i") for i in rows_of)
        loops: Loops = [self.group.loop]
        return index, [*loops, (row, b.size("rows", rows), rows)] if first else loops

    def _count_turns(self, count: int) -> None:
        """Choose whether a work-item keeps its elements in registers, and how many turns it takes then.

        Turns without elements cost less than programs for each number of turns: of open lengths there are a
        power of two, and some more than it takes now.
        """
        limits = self.steps.target.heuristics
        room = min(
            limits.row_registers if self.lanes == 1 else limits.row_vector_registers,
            limits.row_in_registers_max_length // self.workgroup_size,
        )
        self.each = -(-count // self.workgroup_size)
        if is_open(self.each):
            turns = 1 << (near(self.each) - 1).bit_length()
            if turns * self.lanes <= room:
                self.each = max(turns, min(limits.row_open_turns, room // self.lanes))
                self.written_out = count <= self.each * self.workgroup_size  # a condition of the plan
                return
        self.written_out = self.each * self.lanes <= room

    def _is_multi_pass(self) -> bool:
        """Return whether rows are read more than once."""
        roots = [n.inputs[0] for n in self.nodes if n.op in REDUCTIONS]
        roots += [o.node for o in self.fused.outputs if self.fused.spans_domain(o.node)]
        return len({self.waves[id(node)] for node in roots}) > 1

    def keeps(self, node: Node) -> bool:
        """Return whether an element is kept for later passes: it is made again sooner than it is read."""
        return self.written_out and super().keeps(node)

    def _register_cache(self, node: Node) -> Output | None:
        """Return a place in registers, whatever the dtypes of results are."""
        if not self.written_out:
            return None
        slot = min(*self.names, 0) - 1
        self.names[slot] = ""
        return Output(node=node, slot=slot, strides=())

    def _carried(self) -> int:
        """Return how many bytes a work-item has in shared arrays, at most."""
        reducers = [Reducer.of(n.op, n.inputs[0].spec.dtype) for n in self.nodes if n.op in REDUCTIONS]
        return sum(max(d.itemsize, float32.itemsize) for reducer in reducers for d in reducer.dtypes)

    def finished(self, loops: Loops) -> Launch:
        """Return the launch of a workgroup."""
        arrays = [Array(name, dtype, self.each * self.lanes) for name, dtype in self.arrays.values()]
        return self.group.finished(self.b.finish(loops), arrays)

    def _vector_lanes(self) -> int:
        """Return how many elements of a row a work-item takes at once."""
        fused = self.fused
        stored = [o.node.spec.dtype for o in fused.outputs if fused.spans_domain(o.node)]
        inputs = [n.spec for n in fused.graph if n.op == "input"]
        read = [spec.dtype for spec in inputs if always_same(spec.shape, fused.domain)]
        lanes = vector_width(self.steps.target, fused.domain[-1], [*stored, *read])
        while (
            lanes > 1
            and near(prod(fused.domain[k] for k in fused.reduced))
            < self.steps.target.heuristics.row_min_length * lanes
        ):
            lanes //= 2  # every work-item has some
        return lanes

    def end(self, row: Index) -> None:
        if not all(self.fused.spans_domain(o.node) for o in self.fused.outputs):
            with self.b.when(ix.less(self.item, ONE)):
                super().end(row)

    def emit(self, part: RowPass, index: Index) -> None:
        if not self.written_out:
            super().emit(part, index)
            return
        outputs = (*((o.node, o, False) for o in part.stores), *((n, o, True) for n, o in part.keeps))
        values: Sequence[Expr] = [self.inliner.at(n, index) for n, _, _ in outputs]
        if len(outputs) > 1 or part.keeps:  # what is only stored is rounded once
            values = self.b.all(values)
        for (node, o, keeps), e in zip(outputs, values, strict=True):
            if keeps:
                if id(node) not in self.arrays:
                    self.arrays[id(node)] = self.b.fresh("kept"), node.spec.dtype
                self.b.store(self.arrays[id(node)][0], self.at, e)
            if o.node is node and o.slot >= 0:
                self.b.store(self.names[o.slot], self._place(o, index), e)

    def remember(self, part: RowPass) -> None:
        if not self.written_out:
            super().remember(part)
        else:
            self.cached += [node for node, _ in part.keeps]

    def _elements(
        self, row: Index, over: list[int], emit: Callable[[Index], None], back: bool = False,
        sums: BlockedState[tuple[Var, ...]] | None = None,
    ) -> None:  # fmt: skip
        """Emit the loop of a work-item over its elements of the row."""
        b = self.b

        def one(place: Expr) -> None:
            with self.inliner.scope():
                inner = ix.unflatten(place, [self.lengths[k] for k in over])
                at = tuple(i if isinstance(i, Var | Const) else b.let(i, "i") for i in inner)
                index = (*row[: over[0]], *at)
                for node in self.cached:
                    name, dtype = self.arrays[id(node)]
                    self.inliner.bind(node, index, Load(name, self.at, dtype))
                emit(index)

        def all_of(place: Expr, u: Expr) -> None:
            if self.lanes == 1:
                self.at = u
                one(place)
                return
            start, before = ix.multiply(place, const(self.lanes)), ix.multiply(u, const(self.lanes))

            def element(v: Expr) -> None:
                self.at = ix.add(before, v)
                one(b.let(ix.add(start, v), "k"))

            emit_vector(b, self.lanes, element)

        if self.written_out:
            with b.loop(ZERO, const(self.each), kind="unroll", prefix="u") as u:
                place = b.let(ix.add(self.item, ix.multiply(u, const(self.workgroup_size))), "k")
                if self.even:
                    all_of(place, u)
                else:
                    with b.when(ix.less(place, self.count)):
                        all_of(place, u)
            return
        last = ix.subtract(self.count, ONE)

        def placed(place: Expr) -> Expr:
            """Go back where the pass before went forth: what it read last is in the cache."""
            return b.let(ix.subtract(last, place), "k") if back else place

        places = Span(ZERO, self.count, prod(self.fused.domain[k] for k in over) // self.lanes)
        self.group.strided_loop(places, lambda place: all_of(placed(place), ZERO), self.lanes, sums)

    def reduce_row(
        self, reducer: Reducer | ProductReducer, row: Index, over: list[int], element: Element
    ) -> State:  # fmt: skip
        b = self.b
        self.passed += 1
        begin = ix.multiply(self.item, const(self.lanes))
        state = tuple(b.let(e, "acc", mutable=True) for e in reducer.first(begin))

        sums = registers(b, reducer, state, block_of(reducer, self.steps.target.heuristics))

        def take(index: Index) -> None:
            own = sums.state
            for var, e in zip(own, reducer.step(b, own, element(index)), strict=True):
                b.assign(var, e)

        parts = reducer.parts if isinstance(reducer, ProductReducer) else (reducer,)
        back = self.passed % 2 == 0 and not any(part.is_arg_reduction for part in parts)
        self._elements(row, over, take, back, sums)
        return self.group.reduce_across(reducer, state)

    def store(self, part: RowPass, row: Index, over: list[int]) -> None:
        self.passed += 1
        self._elements(row, over, lambda index: self.emit(part, index), back=self.passed % 2 == 0)


def _applies(request: ScheduleRequest, target: Target) -> Verdict:
    if target.row_per_task:
        return "rows are reduced by tasks"
    if request.group.multi_pass and request.reduces_columns:
        return "columns are gone over by a work-item each"
    fused = request.rows
    if near(prod(fused.domain[k] for k in fused.reduced)) < target.heuristics.row_min_length:
        return f"rows are shorter than {target.heuristics.row_min_length}"
    return has_rows(request, target)


def _build(request: ScheduleRequest, launches: LaunchList) -> None:
    lower_row_per_workgroup(request.rows, launches)


ROW_PER_WORKGROUP: Final = Schedule(
    name="row normalization by workgroups",
    about="a workgroup goes over each row, and keeps it in registers",
    kinds=frozenset({"reduction"}), applies=_applies, build=_build,
)  # fmt: skip
