"""A workgroup: how its work-items divide a row among them, and reduce or scan across each other.

Work-items that can read each other's registers join in these; the rest has arrays in the memory that the
group shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...dtypes.definition import DType, bool_
from ..ir import index_expr as ix
from ..ir.builder import Builder, Launch
from ..ir.index_expr import ONE, ZERO, const
from ..ir.loop_ir import INDEX, Apply, Array, Barrier, Expr, For, Load, Var
from ..target import Target
from .pointwise.vector_access import emit_vector
from .reduction.blocked_sum import BlockedState, Span, registers
from .reduction.reducer import ProductReducer, Reducer, State

AnyState = BlockedState[tuple[Var, ...]] | BlockedState[tuple[()]]


def workgroup_size(count: int, most: int) -> int:
    """Return the size of a workgroup that has ``count`` places to do: the next power of two, up to ``most``.

    A subgroup of the field's GPUs is the least: fewer would leave its other lanes idle.
    """
    return int(max(32, min(most, 1 << (count - 1).bit_length())))


@dataclass(slots=True)
class Workgroup:
    """``size`` work-items, a power of two; ``subgroup`` neighbours of them read each other's registers.

    The loop over them is the first of the kernel's. ``shared`` are the arrays that they have together,
    ``read_ahead`` how many elements a work-item asks for before it waits for the first.
    """

    b: Builder
    size: int
    subgroup: int
    read_ahead: int
    item: Var = field(default_factory=lambda: Var("i0", INDEX))
    shared: list[tuple[str, DType]] = field(default_factory=list)

    @classmethod
    def of(cls, b: Builder, size: int, target: Target) -> Workgroup:
        """Return a workgroup of a target's, whose work-items read each other's registers where they can."""
        return cls(b, size, target.subgroup_size, target.heuristics.workgroup_read_ahead)

    def __post_init__(self) -> None:
        self.size = int(self.size)  # it stands in the source, whatever the lengths are
        self.subgroup = min(self.subgroup, self.size)

    @property
    def loop(self) -> tuple[Var, Expr, int]:
        """The parallel loop over the work-items."""
        return self.item, const(self.size), self.size

    def finished(self, launch: Launch, private: Sequence[Array] = ()) -> Launch:
        """Return a launch with the shared arrays before all loops, as some languages want them."""
        count = self.size // self.subgroup if self.subgroup else self.size
        arrays = tuple(Array(name, dtype, count, "shared") for name, dtype in self.shared)
        body = (*arrays, *private, *launch.kernel.body)
        return replace(launch, kernel=replace(launch.kernel, body=body, group=self.size))

    def strided_loop(
        self, bounds: Span, take: Callable[[Expr], None], lanes: int = 1, sums: AnyState | None = None
    ) -> None:
        """Emit the loops in which a work-item takes every so manieth place within ``bounds``.

        A place stands for ``lanes`` elements, which are added to ``sums`` where there are any. Places of many
        turns are written one behind the other, so that all are asked for at once; then those of a few, and
        what is left is taken turn by turn.
        """
        b, (even, stop, most) = self.b, bounds
        sums = sums or BlockedState.plain(b, ())
        for many in {max(self.read_ahead // lanes, 2): None, max(self.read_ahead // 4 // lanes, 2): None}:
            turns, start = const(many * self.size), even
            whole = ix.multiply(ix.quotient(ix.subtract(stop, start), turns), turns)
            even = b.let(ix.add(start, whole), "even")

            def turn(k: Expr, many: int = many) -> None:
                first = b.let(ix.add(k, self.item), "first")
                with b.loop(ZERO, const(many), kind="unroll", prefix="u") as u:
                    take(b.let(ix.add(first, ix.multiply(u, const(self.size))), "k"))

            sums.loop(Span(start, even, most), turn, step=many * self.size, chain=many * lanes)
            most = min(most, many * self.size)
        place = Var(b.fresh("k"), INDEX)
        with b.inner() as body:
            take(place)
        b.emit(For(place, ix.add(even, self.item), stop, tuple(body), step=self.size))

    def reduce(
        self, reducer: Reducer | ProductReducer, bounds: Span, element: Callable[[Expr], State], block: int,
        ordered: bool = False, lanes: int = 1,
    ) -> State:  # fmt: skip
        """Emit the reduction of what is within ``bounds``; every work-item gets the result.

        ``ordered`` says that a place is where its element lies in the row. With ``lanes`` the bounds are
        those of vectors of so many elements. ``block``: see ``blocked_sum.block_of``.
        """
        b = self.b
        begin = ix.multiply(ix.add(bounds.start, self.item), const(lanes))
        first = reducer.first(begin) if ordered else reducer.start()
        state = tuple(b.let(e, "acc", mutable=True) for e in first)
        combine = reducer.step if ordered else reducer.combine
        sums = registers(b, reducer, state, block)

        def one(place: Expr) -> None:
            own = sums.state
            for var, e in zip(own, combine(b, own, element(place)), strict=True):
                b.assign(var, e)

        def vector(place: Expr) -> None:
            start = ix.multiply(place, const(lanes))
            emit_vector(b, lanes, lambda u: one(b.let(ix.add(start, u), "k")))

        self.strided_loop(bounds, vector if lanes > 1 else one, lanes, sums)
        return self.reduce_across(reducer, state)

    def reduce_across(self, reducer: Reducer | ProductReducer, state: State) -> State:
        """Emit what joins the work-items' states; return what they come to, for every work-item."""
        return (
            self._shuffle_reduce(reducer, state)
            if self.subgroup
            else self._tree_reduce_shared(reducer, state)
        )

    def _shuffle_reduce(self, reducer: Reducer | ProductReducer, state: State) -> State:
        """Neighbours read each other's registers, then memory."""
        b, apart = self.b, self.subgroup // 2
        while apart:
            # All work-items shuffle, whether or not a condition needs what the others have.
            other = tuple(b.let(Apply(f"shuffle_xor_{apart}", (e,), e.dtype), "other") for e in state)
            state = tuple(b.let(e, "all") for e in reducer.combine(b, state, other))
            apart //= 2
        if self.size == self.subgroup:
            return state
        names = self._shared_arrays(reducer)
        width = const(self.subgroup)
        with b.when(Apply("equal", (ix.modulo(self.item, width), ZERO), bool_)):
            for name, own in zip(names, state, strict=True):
                b.store(name, ix.quotient(self.item, width), own)
        b.emit(Barrier())

        def read(at: int) -> State:
            return tuple(Load(name, const(at), d) for name, d in zip(names, reducer.dtypes, strict=True))

        states = read(0)
        for k in range(1, self.size // self.subgroup):
            states = tuple(b.let(e, "all") for e in reducer.combine(b, states, read(k)))
        states = tuple(e if isinstance(e, Var) else b.let(e, "all") for e in states)
        b.emit(Barrier())  # before the next row's values come
        return states

    def _tree_reduce_shared(self, reducer: Reducer | ProductReducer, state: State) -> State:
        """By local memory, halving how many work-items have something to join."""
        b, names = self.b, self._shared_arrays(reducer)

        def read(at: Expr) -> State:
            return tuple(Load(name, at, d) for name, d in zip(names, reducer.dtypes, strict=True))

        for name, own in zip(names, state, strict=True):
            b.store(name, self.item, own)
        b.emit(Barrier())
        half = self.size // 2
        while half:
            with b.when(ix.less(self.item, const(half))):
                joined = reducer.combine(b, read(self.item), read(ix.add(self.item, const(half))))
                for name, e in zip(names, joined, strict=True):
                    b.store(name, self.item, e)
            b.emit(Barrier())
            half //= 2
        states = tuple(b.let(e, "all") for e in read(ZERO))
        b.emit(Barrier())  # before the next row's values come
        return states

    def exclusive_scan(
        self, reducer: Reducer | ProductReducer, state: Sequence[Var], first: State
    ) -> tuple[State, State]:
        """Emit the scan of the work-items' states, which are mutable.

        Return what ``first`` and the work-items before each come to, for that work-item, and what all
        work-items come to.
        """
        return (self._shuffle_scan if self.subgroup else self._scan_shared)(reducer, state, first)

    def _shuffle_scan(
        self, reducer: Reducer | ProductReducer, state: Sequence[Var], first: State
    ) -> tuple[State, State]:
        """Pairs of ever longer stretches of neighbours tell each other their sums, then memory."""
        b, apart = self.b, 1
        names = self._shared_arrays(reducer)
        left = tuple(b.let(e, "left", mutable=True) for e in reducer.start())
        lane = b.let(ix.modulo(self.item, const(self.subgroup)), "lane")

        def become(state: Sequence[Var], values: State) -> None:
            for var, e in zip(state, values, strict=True):
                b.assign(var, e)

        while apart < self.subgroup:
            other = tuple(b.let(Apply(f"shuffle_xor_{apart}", (e,), e.dtype), "other") for e in state)
            right = ix.less(const(apart - 1), ix.modulo(lane, const(2 * apart)))
            with b.when(right):
                become(left, reducer.combine(b, other, left))
                become(state, reducer.combine(b, other, tuple(state)))
            with b.when(Apply("logical_not", (right,), bool_)):
                become(state, reducer.combine(b, tuple(state), other))
            apart *= 2
        number = b.let(ix.quotient(self.item, const(self.subgroup)), "part")
        with b.when(ix.less(lane, ONE)):
            for name, own in zip(names, state, strict=True):
                b.store(name, number, own)
        b.emit(Barrier())
        base = tuple(b.let(e, "base", mutable=True) for e in first)
        whole = tuple(b.let(e, "whole", mutable=True) for e in reducer.start())
        for k in range(self.size // self.subgroup):
            part = tuple(
                b.let(Load(name, const(k), d), "sum") for name, d in zip(names, reducer.dtypes, strict=True)
            )
            with b.when(ix.less(const(k), number)):
                become(base, reducer.combine(b, base, part))
            become(whole, reducer.combine(b, whole, part))
        become(base, reducer.combine(b, base, left))
        return base, whole

    def _scan_shared(
        self, reducer: Reducer | ProductReducer, state: Sequence[Var], first: State
    ) -> tuple[State, State]:
        """By local memory: each adds what stands one before, two before, four before."""
        b, step = self.b, 1
        here, there = self._shared_arrays(reducer), self._shared_arrays(reducer)

        def read(names: Sequence[str], at: Expr) -> State:
            return tuple(Load(name, at, d) for name, d in zip(names, reducer.dtypes, strict=True))

        for name, own in zip(here, state, strict=True):
            b.store(name, self.item, own)
        b.emit(Barrier())
        while step < self.size:
            sums = tuple(b.let(e, "sum", mutable=True) for e in read(here, self.item))
            with b.when(ix.less(const(step - 1), self.item)):
                left = read(here, ix.subtract(self.item, const(step)))
                for var, e in zip(sums, reducer.combine(b, left, sums), strict=True):
                    b.assign(var, e)
            for name, e in zip(there, sums, strict=True):
                b.store(name, self.item, e)
            b.emit(Barrier())
            here, there, step = there, here, 2 * step
        base = tuple(b.let(e, "base", mutable=True) for e in first)
        with b.when(ix.less(ZERO, self.item)):
            left = read(here, ix.subtract(self.item, ONE))
            for var, e in zip(base, reducer.combine(b, base, left), strict=True):
                b.assign(var, e)
        return base, read(here, const(self.size - 1))

    def _shared_arrays(self, reducer: Reducer | ProductReducer) -> list[str]:
        names = [self.b.fresh("partial") for _ in reducer.dtypes]
        self.shared += list(zip(names, reducer.dtypes, strict=True))
        return names
