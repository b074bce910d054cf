"""The serial part of a reduction: in vectors, or in unrolled lanes for what has none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ....dtypes.definition import bool_, int64
from ....tracing.sym_int import is_open
from ...heuristics import Heuristics
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ZERO, const
from ...ir.loop_ir import Apply, Cast, Const, Expr, Kind, Load, Select, Var
from ..pointwise.vectorize import (
    Accumulators,
    VectorLoop,
    Vectors,
    accumulators,
    reduce_lanes,
    tree_reduce_lanes,
)
from .blocked_sum import BlockedState, Nest, Span, block_of, registers
from .reducer import OPS, ProductReducer, Reducer, State

Element = Callable[[tuple[Expr, ...]], State]
Prefetch = Callable[[Expr, int], None]
"""What is written before so many elements from a position on are read."""


def reduce_in_vectors(
    b: Builder, reducer: Reducer | ProductReducer, index: list[Expr], over: list[int],
    bound: dict[int, Span], element: Element, vectors: Vectors, block: int, ahead: Prefetch | None = None,
) -> State | None:  # fmt: skip
    """Emit a reduction whose last axis is read in vectors; None, and nothing, where that cannot be.

    ``block``: see ``blocked_sum.block_of``.
    """
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
    constants = [e for e in first if isinstance(e, Const)]
    lanes, many = vectors.lanes, vectors.many

    def fresh() -> Accumulators:
        return accumulators(b, constants, lanes, many)

    def add(to: tuple[Var, ...], new: tuple[Var, ...]) -> None:
        for var, e in zip(to, reducer.combine(b, to, new), strict=True):
            b.assign(var, e)

    def vector(state: Accumulators, j: int) -> tuple[Var, ...]:
        return state.wide[j * len(first) : (j + 1) * len(first)]

    def join(whole: Accumulators, part: Accumulators) -> None:
        for j in range(many):
            add(vector(whole, j), vector(part, j))
        add(whole.rest, part.rest)

    def emit(k: Expr) -> State:
        index[last] = k
        return element(tuple(index))

    fits: list[bool] = []
    with b.inner() as body:
        whole = fresh()
        sums = BlockedState(b=b, block=block, state=whole, fresh=fresh, join=join)
        loop = VectorLoop(vectors=vectors, emit=emit, combine=reducer.combine, ahead=ahead)
        length = bound[last].most
        chain = _chain(length, lanes * many, lanes * many)
        sums.nest(_outer(index, over[:-1], bound), lambda: fits.append(loop.reduce(sums, bound[last])), chain)
        if not all(fits):
            return None
        for j in range(1, many):
            add(vector(whole, 0), vector(whole, j))
        totals = tuple(
            reduce_lanes(b, wide, rest, part.combine)
            for wide, rest, part in zip(vector(whole, 0), whole.rest, parts, strict=True)
        )
    b.block.extend(body)
    return totals


def _outer(index: list[Expr], over: list[int], bound: dict[int, Span]) -> list[Nest]:
    """Return the loops over some axes, which put their places into ``index``."""
    return [Nest(bound[k], partial(index.__setitem__, k)) for k in over]


def reduce_serially(
    b: Builder, reducer: Reducer | ProductReducer, index: list[Expr], over: list[int],
    bound: dict[int, Span], element: Element, block: int, kind: Kind = "serial",
) -> State:  # fmt: skip
    """Emit a reduction whose elements are read one by one."""
    state = tuple(b.let(e, "acc", mutable=True) for e in reducer.first(bound[over[0]].start))
    sums = registers(b, reducer, state, block)

    def one() -> None:
        own = sums.state
        for var, e in zip(own, reducer.step(b, own, element(tuple(index))), strict=True):
            b.assign(var, e)

    sums.nest(_outer(index, over, bound), one, 1, kind)
    return state


def _arg_reduce_in_vectors(
    b: Builder, reducer: Reducer, index: list[Expr], last: int, bound: Span, element: Element,
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
    start, stop, _ = bound

    def value(k: Expr) -> State:
        index[last] = k
        return element(tuple(index))[:1]

    def follow(b: Builder, before: State, new: State) -> State:
        at, best, step = before
        candidate = b.let(new[0], "new")
        n = candidate.lanes
        wins = reducer.beats(candidate, best)
        one = replace(literal(1, d), lanes=n)
        return (
            Select(wins, step, at, d, n),
            Select(wins, candidate, best, d, n),
            Apply("add", (step, one), d, n),
        )

    with b.inner() as body:
        zero = literal(0, d)
        states = accumulators(b, (zero, first, zero), lanes)
        wide, rest = states
        loop = VectorLoop(vectors=replace(vectors, lanes=lanes, many=1), emit=value, combine=follow)
        if not loop.reduce(BlockedState.plain(b, states), bound):
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

        def take(states: Expr, at: Expr) -> None:
            nan = ix.both([Apply("isnan", (e,), bool_) for e in (states, top)])
            hit = Apply("logical_or", (Apply("equal", (states, top), bool_), nan), bool_)
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
    bound: dict[int, Span], element: Element, lanes: int, limits: Heuristics, ahead: Prefetch | None = None,
    rest: Kind = "serial",
) -> State:  # fmt: skip
    """Emit a reduction whose last axis is read ``lanes`` elements at a time, each lane for itself.

    ``rest`` is the kind of the loops over those that are left; where some lanes take most of these, too few
    are left to make vectors of.
    """
    last, block = over[-1], block_of(reducer, limits)
    two_steps = lanes >= limits.lanes_in_two_steps and rest != "rest"
    few = (lanes // limits.lanes_second_share,) if two_steps else ()

    def read(arrays: Sequence[str], lane: Expr) -> State:
        return tuple(Load(name, lane, d) for name, d in zip(arrays, reducer.dtypes, strict=True))

    def write(arrays: Sequence[str], lane: Expr, state: State) -> None:
        for name, e in zip(arrays, state, strict=True):
            b.store(name, lane, e)

    def fresh() -> Sequence[str]:
        arrays = [b.array(d, lanes) for d in reducer.dtypes]
        with b.loop(ZERO, const(lanes), kind="unroll", prefix="u") as u:
            write(arrays, u, reducer.start())
        return arrays

    def join(whole: Sequence[str], part: Sequence[str]) -> None:
        with b.loop(ZERO, const(lanes), kind="unroll", prefix="u") as u:
            write(whole, u, reducer.combine(b, read(whole, u), read(part, u)))

    arrays = fresh()
    sums = BlockedState(b=b, block=block, state=arrays, fresh=fresh, join=join)

    def take(lane: Expr, k: Expr) -> None:
        index[last] = k
        write(sums.state, lane, reducer.combine(b, read(sums.state, lane), element(tuple(index))))

    def add_lanes() -> None:
        start, stop, most = bound[last]
        for some in (lanes, *few):
            blocks = ix.multiply(ix.quotient(ix.subtract(stop, start), const(some)), const(some))
            even = b.let(ix.add(start, blocks), "even")

            def turn(k: Expr, some: int = some) -> None:
                if ahead is not None and some == lanes:
                    ahead(k, lanes)
                with b.loop(ZERO, const(some), kind="unroll", prefix="u") as u:
                    take(u, ix.add(k, u))

            sums.loop(Span(start, even, most), turn, step=some)
            start, most = even, lanes
        with b.loop(start, stop, kind="rest" if few else rest) as k:
            take(ZERO, k)

    length = bound[last].most
    chain = _chain(length, lanes, (few or (lanes,))[-1])
    sums.nest(_outer(index, over[:-1], bound), add_lanes, chain)
    tree_reduce_lanes(
        b, lanes, lambda k, j: write(arrays, k, reducer.combine(b, read(arrays, k), read(arrays, j)))
    )
    return tuple(b.let(e, "acc") for e in read(arrays, ZERO))


def _chain(length: int, lanes: int, last: int) -> int:
    """Return how many are added in a row at most: turns of ``lanes``, then fewer than ``last`` one by one.

    Of an open length a number that is not less, so that one way to add serves all lengths.
    """
    if is_open(length):
        return length // lanes + last
    return max(length // lanes, min(length, last - 1), 1)
