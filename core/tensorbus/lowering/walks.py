"""How one item goes over its part of a reduction: in vectors, in lanes, or in blocks to find a place."""

from __future__ import annotations

from collections.abc import Callable

from ..dtypes import bool_, int64
from . import index as ix
from .builder import Builder
from .index import ONE, ZERO, const
from .ir import Apply, Assign, Cast, Const, Expr, Load
from .reducer import OPS, Reducer, State
from .widen import WIDE, Walk, accumulators, gather_lanes

Element = Callable[[tuple[Expr, ...]], State]
BLOCK = 512


def walk_vectors(
    b: Builder, reducer: Reducer, index: list[Expr], over: list[int],
    bound: dict[int, tuple[Expr, Expr]], element: Element, lanes: int, ops: frozenset[str],
) -> State | None:  # fmt: skip
    """Emit a reduction whose last axis is walked in vectors; None, and nothing, where that cannot be."""
    if reducer.finds:
        return _walk_blocks(b, reducer, index, over[-1], bound[over[-1]], element, lanes, ops)
    (first, *more), last = reducer.start(), over[-1]
    if more or first.dtype not in WIDE or OPS.get(reducer.op) not in ops or not isinstance(first, Const):
        return None
    lanes = max(lanes * 4 // first.dtype.itemsize, 1)
    with b.inner() as body:
        wide, rest = accumulators(b, first, lanes)

        def emit(k: Expr) -> State:
            index[last] = k
            return element(tuple(index))

        def nest(left: list[int]) -> bool:
            if left[0] == last:
                walk = Walk(ops=ops, lanes=lanes, emit=emit, combine=reducer.combine)
                return walk.loop(b, *bound[last], (wide,), (rest,))
            with b.loop(*bound[left[0]]) as i:
                index[left[0]] = i
                return nest(left[1:])

        if not nest(over):
            return None
        total = gather_lanes(b, wide, rest, reducer.combine)
    b.block.extend(body)
    return (total,)


def _walk_blocks(
    b: Builder, reducer: Reducer, index: list[Expr], last: int, bound: tuple[Expr, Expr], element: Element,
    lanes: int, ops: frozenset[str],
) -> State | None:  # fmt: skip
    """Emit the search for an extreme: which block has it first, and then where in that block it is."""
    best = Reducer(op="max" if reducer.op == "argmax" else "min", dtypes=reducer.dtypes[:1])
    first = reducer.least()
    if first.dtype not in WIDE or OPS[best.op] not in ops:
        return None
    lanes = max(lanes * 4 // first.dtype.itemsize, 1)
    start, stop = bound

    def value(k: Expr) -> State:
        index[last] = k
        return element(tuple(index))[:1]

    def end(block: Expr) -> Expr:
        return b.let(ix.minimum(ix.add(block, const(BLOCK)), stop), "end")

    with b.inner() as body:
        top, where = b.let(first, "top", mutable=True), b.let(start, "where", mutable=True)
        with b.loop(start, stop, step=BLOCK, prefix="block") as block:
            wide, rest = accumulators(b, first, lanes)
            walk = Walk(ops=ops, lanes=lanes, emit=value, combine=best.combine)
            if not walk.loop(b, block, end(block), (wide,), (rest,)):
                return None
            found = gather_lanes(b, wide, rest, best.combine)
            with b.when(reducer.beats(found, top)):
                b.assign(top, found)
                b.assign(where, block)
        place = b.let(const(-1), "place", mutable=True)
        with b.loop(where, end(where)) as k:
            new = b.let(value(k)[0], "new")
            nan = ix.both([Apply("isnan", (e,), bool_) for e in (new, top)])
            hit = Apply("logical_or", (Apply("equal", (new, top), bool_), nan), bool_)
            with b.when(ix.both([ix.less(place, ZERO), hit])):
                b.assign(place, k)
    b.block.extend(body)
    return top, Cast(place, int64)


def walk_lanes(
    b: Builder, reducer: Reducer, index: list[Expr], over: list[int],
    bound: dict[int, tuple[Expr, Expr]], element: Element, lanes: int,
) -> State:  # fmt: skip
    """Emit a reduction whose last axis is walked ``lanes`` elements at a time, each lane for itself."""
    arrays = [b.array(d, lanes) for d in reducer.dtypes]
    last = over[-1]

    def read(lane: Expr) -> State:
        return tuple(Load(name, lane, d) for name, d in zip(arrays, reducer.dtypes, strict=True))

    def write(lane: Expr, state: State) -> None:
        for name, e in zip(arrays, state, strict=True):
            b.store(name, lane, e)

    with b.loop(ZERO, const(lanes), kind="unroll", prefix="u") as u:
        write(u, reducer.start())

    def nest(left: list[int]) -> None:
        if left[0] != last:
            with b.loop(*bound[left[0]]) as i:
                index[left[0]] = i
                nest(left[1:])
            return
        start, stop = bound[last]
        blocks = ix.multiply(ix.quotient(ix.subtract(stop, start), const(lanes)), const(lanes))
        even = b.let(ix.add(start, blocks), "even")
        with b.loop(start, even, step=lanes) as k, b.loop(ZERO, const(lanes), kind="unroll", prefix="u") as u:
            index[last] = ix.add(k, u)
            write(u, reducer.combine(b, read(u), element(tuple(index))))
        with b.loop(even, stop) as k:
            index[last] = k
            write(ZERO, reducer.combine(b, read(ZERO), element(tuple(index))))

    nest(over)
    state = tuple(b.let(e, "acc", mutable=True) for e in read(ZERO))
    with b.loop(ONE, const(lanes), prefix="u") as u:
        for var, e in zip(state, reducer.combine(b, state, read(u)), strict=True):
            b.emit(Assign(var, e))
    return state
