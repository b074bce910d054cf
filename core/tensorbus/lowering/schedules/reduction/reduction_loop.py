"""The serial part of a reduction: in vectors, or in unrolled lanes for what has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....dtypes.definition import bool_, int64
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ZERO, const
from ...ir.loop_ir import Apply, Assign, Cast, Const, Expr, Kind, Load, Select
from ..pointwise.vectorize import VectorLoop, Vectors, accumulators, reduce_lanes, tree_reduce_lanes
from .reducer import OPS, ProductReducer, Reducer, State

Element = Callable[[tuple[Expr, ...]], State]
Prefetch = Callable[[Expr, int], None]
"""What is written before so many elements from a position on are walked."""


def reduce_in_vectors(
    b: Builder, reducer: Reducer | ProductReducer, index: list[Expr], over: list[int],
    bound: dict[int, tuple[Expr, Expr]], element: Element, vectors: Vectors, ahead: Prefetch | None = None,
) -> State | None:  # fmt: skip
    """Emit a reduction whose last axis is walked in vectors; None, and nothing, where that cannot be."""
    if isinstance(reducer, Reducer) and reducer.is_arg_reduction:
        return _arg_reduce_in_vectors(b, reducer, index, over[-1], bound[over[-1]], element, vectors)
    parts = reducer.parts if isinstance(reducer, ProductReducer) else (reducer,)
    first, last = reducer.start(), over[-1]
    if len({e.dtype for e in first}) != 1 or first[0].dtype not in vectors.dtypes:
        return None
    known = all(OPS.get(part.op) in vectors.ops for part in parts)
    if not known or not all(isinstance(e, Const) for e in first):
        return None
    vectors = replace(vectors, lanes=max(vectors.lanes * 4 // first[0].dtype.itemsize, 1))
    with b.inner() as body:
        pairs = [accumulators(b, e, vectors.lanes) for e in first if isinstance(e, Const)]
        wide = [pair[0] for pair in pairs]
        more = [
            b.let(replace(e, lanes=vectors.lanes), "wide", mutable=True) for e in first * (vectors.many - 1)
        ]

        def emit(k: Expr) -> State:
            index[last] = k
            return element(tuple(index))

        def nest(left: list[int]) -> bool:
            if left[0] == last:
                walk = VectorLoop(vectors=vectors, emit=emit, combine=reducer.combine, ahead=ahead)
                return walk.loop(b, *bound[last], [*wide, *more], [rest for _, rest in pairs])
            with b.loop(*bound[left[0]]) as i:
                index[left[0]] = i
                return nest(left[1:])

        if not nest(over):
            return None
        for j in range(0, len(more), len(wide)):
            for var, e in zip(wide, reducer.combine(b, tuple(wide), tuple(more[j:])), strict=True):
                b.assign(var, e)
        totals = tuple(
            reduce_lanes(b, wide, rest, part.combine) for (wide, rest), part in zip(pairs, parts, strict=True)
        )
    b.block.extend(body)
    return totals


def reduce_serially(
    b: Builder, reducer: Reducer | ProductReducer, index: list[Expr], over: list[int],
    bound: dict[int, tuple[Expr, Expr]], element: Element, kind: Kind = "serial",
) -> State:  # fmt: skip
    """Emit a reduction whose elements are walked one by one."""
    state = tuple(b.let(e, "acc", mutable=True) for e in reducer.first(bound[over[0]][0]))

    def nest(left: list[int]) -> None:
        if left:
            with b.loop(*bound[left[0]], kind=kind) as i:
                index[left[0]] = i
                nest(left[1:])
            return
        for var, e in zip(state, reducer.step(b, state, element(tuple(index))), strict=True):
            b.emit(Assign(var, e))

    nest(over)
    return state


def _arg_reduce_in_vectors(
    b: Builder, reducer: Reducer, index: list[Expr], last: int, bound: tuple[Expr, Expr], element: Element,
    vectors: Vectors,
) -> State | None:  # fmt: skip
    """Emit the search for an extreme: each lane keeps its own, and in which step it came.

    Steps are counted in floats, so that all is in vectors of one kind: a chunk of a row has few.
    """
    first = reducer.least()
    d = first.dtype
    if d not in vectors.dtypes or not vectors.ops >= {"add", "select"}:
        return None
    lanes = max(vectors.lanes * 4 // d.itemsize, 1)
    start, stop = bound

    def value(k: Expr) -> State:
        index[last] = k
        return element(tuple(index))[:1]

    def follow(b: Builder, before: State, new: State) -> State:
        at, best, step = before
        given = b.let(new[0], "new")
        n = given.lanes
        wins = reducer.beats(given, best)
        one = replace(literal(1, d), lanes=n)
        return Select(wins, step, at, d, n), Select(wins, given, best, d, n), Apply("add", (step, one), d, n)

    with b.inner() as body:
        zero = literal(0, d)
        wide, rest = zip(*(accumulators(b, e, lanes) for e in (zero, first, zero)), strict=True)
        walk = VectorLoop(vectors=replace(vectors, lanes=lanes, many=1), emit=value, combine=follow)
        if not walk.loop(b, start, stop, wide, rest):
            return None
        # In floats still, the extreme first and then its place, so that one number is converted, not each.
        best = Reducer(op="max" if reducer.op == "argmax" else "min", dtypes=(d,))
        rest_at, rest_best, _ = rest
        own = b.let(rest_best, "own")
        top = b.let(reduce_lanes(b, wide[1], rest_best, best.combine), "top")
        steps, values = b.array(d, lanes), b.array(d, lanes)
        b.store(steps, ZERO, wide[0])
        b.store(values, ZERO, wide[1])
        place = b.let(literal(float("inf"), d), "place", mutable=True)

        def take(found: Expr, at: Expr) -> None:
            nan = ix.both([Apply("isnan", (e,), bool_) for e in (found, top)])
            hit = Apply("logical_or", (Apply("equal", (found, top), bool_), nan), bool_)
            near = b.let(at, "at")
            sooner = ix.both([hit, Apply("less", (near, place), bool_)])
            b.assign(place, Select(sooner, near, place, d))

        # A lane that saw nothing has the least value, and counts where all have it: the first lane is sooner.
        with b.loop(ZERO, const(lanes), prefix="u") as u:
            whole = Apply("multiply", (Load(steps, u, d), literal(lanes, d)), d)
            take(b.let(Load(values, u, d)), Apply("add", (whole, Cast(u, d)), d))
        left = ix.multiply(ix.quotient(ix.subtract(stop, start), const(lanes)), const(lanes))
        take(own, Apply("add", (Cast(left, d), rest_at), d))
        at = b.let(Apply("add", (Cast(start, int64), Cast(place, int64)), int64), "at")
    b.block.extend(body)
    return top, at


def reduce_in_lanes(
    b: Builder, reducer: Reducer | ProductReducer, index: list[Expr], over: list[int],
    bound: dict[int, tuple[Expr, Expr]], element: Element, lanes: int, ahead: Prefetch | None = None,
    rest: Kind = "serial",
) -> State:  # fmt: skip
    """Emit a reduction whose last axis is walked ``lanes`` elements at a time, each lane for itself.

    ``rest`` is the kind of the loops over those that are left.
    """
    arrays = [b.array(d, lanes) for d in reducer.dtypes]
    last = over[-1]
    few = (
        (lanes // 8,) if lanes >= 32 and rest != "rest" else ()
    )  # of which rows that are not whole lanes have many

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
        for some in (lanes, *few):
            blocks = ix.multiply(ix.quotient(ix.subtract(stop, start), const(some)), const(some))
            even = b.let(ix.add(start, blocks), "even")
            with b.loop(start, even, step=some) as k:
                if ahead is not None and some == lanes:
                    ahead(k, lanes)
                with b.loop(ZERO, const(some), kind="unroll", prefix="u") as u:
                    index[last] = ix.add(k, u)
                    write(u, reducer.combine(b, read(u), element(tuple(index))))
            start = even
        with b.loop(start, stop, kind=rest) as k:
            index[last] = k
            write(ZERO, reducer.combine(b, read(ZERO), element(tuple(index))))

    nest(over)
    tree_reduce_lanes(b, lanes, lambda k, j: write(k, reducer.combine(b, read(k), read(j))))
    return tuple(b.let(e, "acc") for e in read(ZERO))
