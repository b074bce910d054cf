"""The schedules of reductions: a row to a solo item, an output to a light item, or chunks in two stages.

Long sums are always cut into chunks and lanes, so that float32 sums stay accurate as well as parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt, prod

from ..dtypes import DType, bfloat16, bool_, float16, float32, int64, integer_range
from . import index as ix
from .builder import Builder, literal
from .index import ONE, ZERO, const
from .ir import Apply, Assign, Cast, Expr, Load, Select, Var
from .job import Job, Steps, place, spread
from .layout import Layout, packed

State = tuple[Expr, ...]
SHORT = 32
CHUNK = 65536
TALL = 128
MANY = 1024


def accumulator(dtype: DType) -> DType:
    """Return the dtype that values of ``dtype`` add up in."""
    return float32 if dtype in (float16, bfloat16) else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducer:
    """What is carried along a reduction. ``dtypes`` are those of the state's parts."""

    op: str
    dtypes: tuple[DType, ...]

    @classmethod
    def of(cls, op: str, dtype: DType) -> Reducer:
        """Return the reducer of a prim over elements of ``dtype``."""
        kept = accumulator(dtype)
        return cls(op=op, dtypes=(kept, int64) if op in ("argmax", "argmin") else (kept,))

    def start(self) -> State:
        """Return the state before any element."""
        d = self.dtypes[0]
        match self.op:
            case "sum":
                return (literal(0, d),)
            case "prod":
                return (literal(1, d),)
            case "any" | "all":
                return (literal(self.op == "all", d),)
            case "max" | "min":
                if d.is_floating:
                    return (literal(float("-inf" if self.op == "max" else "inf"), d),)
                return (literal(integer_range(d)[0 if self.op == "max" else 1] if d is not bool_ else 0, d),)
            case _:
                return (literal(0, d), literal(-1, int64))

    def element(self, value: Expr, position: Expr) -> State:
        """Return the state that one element makes."""
        given = Cast(value, self.dtypes[0]) if value.dtype is not self.dtypes[0] else value
        return (given,) if len(self.dtypes) == 1 else (given, Cast(position, int64))

    def combine(self, b: Builder, a: State, x: State) -> State:
        """Return the state of both, those of ``a`` coming first."""
        d = self.dtypes[0]
        op = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum",
              "any": "logical_or", "all": "logical_and"}.get(self.op)  # fmt: skip
        if op is not None:
            return (Apply(op, (a[0], x[0]), d),)
        best, new = (e if isinstance(e, Var) else b.let(e) for e in (a[0], x[0]))
        beats: Expr = Apply("greater" if self.op == "argmax" else "less", (new, best), bool_)
        same: Expr = Apply("equal", (new, best), bool_)
        if d.is_floating:
            nan, was = (Apply("isnan", (e,), bool_) for e in (new, best))
            both_nan, only = ix.both([nan, was]), ix.both([nan, Apply("logical_not", (was,), bool_)])
            beats = Apply("logical_or", (beats, only), bool_)
            same = Apply("logical_or", (same, both_nan), bool_)
        earlier = ix.both([same, Apply("less", (x[1], a[1]), bool_)])
        none = Apply("less", (a[1], literal(0, int64)), bool_)
        valid = Apply("greater_equal", (x[1], literal(0, int64)), bool_)
        wins = Apply("logical_or", (none, Apply("logical_or", (beats, earlier), bool_)), bool_)
        take = b.let(ix.both([valid, wins]), "take")
        return (Select(take, new, best, d), Select(take, x[1], a[1], int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis of a reduction's domain."""

    length: Expr
    value: int
    reduced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """Axis ``axis`` cut into ``count`` pieces of ``size``, which are walked in parallel.

    ``woven`` pieces take every ``count``-th element, so that items side by side read side by side.
    """

    axis: int
    size: int
    count: int
    woven: bool = False


Element = Callable[[tuple[Expr, ...]], State]
Finish = Callable[[tuple[Expr, ...], State], None]


def fold(
    b: Builder, reducer: Reducer, axes: Sequence[Axis], element: Element, finish: Finish,
    chunks: Chunks | None = None, lanes: int = 1,
) -> list[tuple[Var, Expr, int]]:  # fmt: skip
    """Emit a reduction; return its parallel loops.

    ``finish`` gets the kept indices, the chunk's number first where there are chunks. ``lanes`` > 1 walks the
    last axis that many elements at a time.
    """
    kept = [k for k, a in enumerate(axes) if not a.reduced]
    parallel = [(axes[k].length, axes[k].value) for k in kept]
    if chunks is not None:
        parallel.insert(0, (b.size("chunks", chunks.count), chunks.count))
    outer, loops = spread(b, [n for n, _ in parallel], [v for _, v in parallel])
    index: list[Expr] = [ZERO] * len(axes)
    for k, i in zip(kept, outer[-len(kept) :] if kept else (), strict=True):
        index[k] = i
    over = [k for k, a in enumerate(axes) if a.reduced]

    def bounds(k: int) -> tuple[Expr, Expr]:
        if chunks is None or chunks.axis != k:
            return ZERO, axes[k].length
        if chunks.woven:
            count = b.size("chunks", chunks.count)
            left = ix.add(ix.subtract(axes[k].length, outer[0]), ix.subtract(count, ONE))
            return ZERO, b.let(ix.quotient(left, count), "stop")
        size = b.size("chunk", chunks.size)
        start = b.let(ix.multiply(outer[0], size), "start")
        return start, b.let(ix.minimum(ix.add(start, size), axes[k].length), "stop")

    bound = {k: bounds(k) for k in over}
    if lanes > 1:
        finish(tuple(outer), _walk_lanes(b, reducer, index, over, bound, element, lanes))
        return loops
    state = tuple(b.let(e, "acc", mutable=True) for e in reducer.start())

    def nest(left: list[int]) -> None:
        if left:
            with b.loop(*bound[left[0]]) as i:
                index[left[0]] = i
                if chunks is not None and chunks.woven and chunks.axis == left[0]:
                    index[left[0]] = ix.add(ix.multiply(i, b.size("chunks", chunks.count)), outer[0])
                nest(left[1:])
        else:
            for var, e in zip(state, reducer.combine(b, state, element(tuple(index))), strict=True):
                b.emit(Assign(var, e))

    nest(over)
    finish(tuple(outer), state)
    return loops


def _walk_lanes(
    b: Builder, reducer: Reducer, index: list[Expr], over: list[int],
    bound: dict[int, tuple[Expr, Expr]], element: Element, lanes: int,
) -> State:  # fmt: skip
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


def plan_chunks(axes: Sequence[Axis], wanted: int, rows: bool, *, floating: bool) -> Chunks | None:
    """Return how to cut a reduction that has too few outputs for the device, or is too long to be exact."""
    over = [k for k, a in enumerate(axes) if a.reduced]
    if not over or any(a.value == 0 for a in axes):
        return None
    outputs = prod(a.value for a in axes if not a.reduced)
    total = prod(axes[k].value for k in over)
    axis = max(over, key=lambda k: (axes[k].value, -k))
    length = axes[axis].value
    least = 1024 if rows else 64
    count = min(-(-wanted // outputs), max(total // least, 1)) if outputs < wanted else 1
    if floating and (rows or total > CHUNK):
        count = max(count, -(-total // CHUNK))
    if not rows and outputs >= TALL and length >= 4 * TALL:
        # Items of a group walk down side by side; a short walk keeps what they share in cache.
        count = max(count, length // TALL)
    count = min(count, length)
    if count < 2:
        return None
    size = -(-length // count)
    return Chunks(axis=axis, size=size, count=-(-length // size), woven=not rows and axis == len(axes) - 1)


def lower_reduction(job: Job, steps: Steps, *, costly: bool = False) -> None:
    """Append the launches of a reduction root. ``costly``: its operand calls functions for each element."""
    root, operand = job.root, job.root.inputs[0]
    b = Builder(f"tb_{root.op}")
    pull, slots = job.puller(b)
    over = root.attrs["axis"]
    shape = operand.spec.shape
    axes = [Axis(length=pull.length(operand, k), value=n, reduced=k in over) for k, n in enumerate(shape)]
    reducer = Reducer.of(root.op, operand.spec.dtype)
    target = steps.target
    rows = (
        target.solo_rows and bool(over) and over[-1] == len(shape) - 1 and shape[-1] >= SHORT and not costly
    )
    wanted = target.groups if rows else target.items
    chunks = plan_chunks(axes, wanted, rows, floating=operand.spec.dtype.is_floating)
    kept = tuple(n for k, n in enumerate(shape) if k not in over)
    layout = packed(job.out, kept) if job.strides is None else Layout(job.out, kept, job.strides)

    def element(index: tuple[Expr, ...]) -> State:
        with pull.scope():
            position = index[over[0]] if over else ZERO
            return reducer.element(pull.value(operand, index), position)

    lengths = [a.length for a in axes if not a.reduced]
    if chunks is None:
        loops = fold(b, reducer, axes, element, _finisher(b, reducer, root.spec.dtype, lengths, layout),
                     lanes=target.lanes if rows else 1)  # fmt: skip
        steps.add(b.finish(loops, solo=rows), {**slots, "out": job.out})
        return
    size = chunks.count * prod(kept)
    partial = [steps.temporary(size, d) for d in reducer.dtypes]

    keep = _keeper(b, lengths, chunks, "part")
    loops = fold(b, reducer, axes, element, keep, chunks, target.lanes if rows else 1)
    named = {f"part{k}": slot for k, slot in enumerate(partial)}
    steps.add(b.finish(loops, solo=rows), {**slots, **named})
    _second_stage(job, steps, reducer, chunks.count, kept, named, layout)


def _finisher(b: Builder, reducer: Reducer, dtype: DType, lengths: Sequence[Expr], layout: Layout) -> Finish:
    def finish(index: tuple[Expr, ...], state: State) -> None:
        b.buffer("out", dtype, writes=True)
        value = state[-1]
        at = place(b, "out", index, lengths, layout)
        b.store("out", at, Cast(value, dtype) if value.dtype is not dtype else value)

    return finish


def _second_stage(
    job: Job,
    steps: Steps,
    reducer: Reducer,
    count: int,
    kept: tuple[int, ...],
    parts: dict[str, int],
    layout: Layout,
) -> None:
    """Append what reduces ``count`` parts; many of them in more stages, each as long as the next is wide."""
    b = Builder(f"tb_{job.root.op}_rest")
    lengths = [b.size(f"n{k}", n) for k, n in enumerate(kept)]
    axes = [Axis(length=b.size("parts", count), value=count, reduced=True)]
    axes += [Axis(length=e, value=n, reduced=False) for e, n in zip(lengths, kept, strict=True)]
    chunks = None
    if count > MANY and prod(kept) < steps.target.items:
        size = isqrt(count)
        chunks = Chunks(axis=0, size=size, count=-(-count // size))

    def element(index: tuple[Expr, ...]) -> State:
        at = ix.flatten(index, [a.length for a in axes])
        return tuple(Load(b.buffer(name, d), at, d) for name, d in zip(parts, reducer.dtypes, strict=True))

    if chunks is None:
        loops = fold(b, reducer, axes, element, _finisher(b, reducer, job.root.spec.dtype, lengths, layout))
        steps.add(b.finish(loops), {**parts, "out": job.out})
        return
    fewer = [steps.temporary(chunks.count * prod(kept), d) for d in reducer.dtypes]
    loops = fold(b, reducer, axes, element, _keeper(b, lengths, chunks, "less"), chunks)
    steps.add(b.finish(loops), {**parts, **{f"less{k}": slot for k, slot in enumerate(fewer)}})
    named = {f"part{k}": slot for k, slot in enumerate(fewer)}
    _second_stage(job, steps, reducer, chunks.count, kept, named, layout)


def _keeper(b: Builder, lengths: Sequence[Expr], chunks: Chunks, name: str) -> Finish:
    """Return what stores the states of chunks in buffers ``name0``, ``name1`` ..., chunk by chunk."""

    def keep(index: tuple[Expr, ...], state: State) -> None:
        at = ix.flatten(index, [b.size("chunks", chunks.count), *lengths])
        for k, e in enumerate(state):
            b.store(b.buffer(f"{name}{k}", e.dtype, writes=True), at, e)

    return keep
