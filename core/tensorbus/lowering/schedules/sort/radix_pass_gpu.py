"""Radix pass on GPUs: brings elements into the order of their buckets; a workgroup takes a tile.

A work-item counts its elements in two words, a byte for each bucket; the group adds these up, 16 bits for
each. The running sum of all counts, bucket by bucket, says where the elements of a tile begin in each. They
are put in order in local memory first, so that neighbours go to neighbouring places (Satish, Harris and
Garland: "Designing efficient sorting algorithms for manycore GPUs", 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ....dtypes.definition import bool_, int32, int64, uint8, uint64
from ....tracing.sym_int import known_divisor
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import LaunchList
from ...ir.loop_ir import INDEX, Apply, Array, Barrier, Cast, Expr, Load, Select, Var
from ..pointwise.vector_access import emit_vector, vector_width
from ..reduction.reducer import ProductReducer, Reducer, State
from ..workgroup import workgroup_size
from .bucket_pass import Destination, Source
from .tile_kernel import TileKernel, Tiles, sum_counts

BITS: Final = 4
"""Of a key in one pass."""
BUCKETS: Final = 1 << BITS
_LANES: Final = 8
"""Buckets that a word of a work-item counts, a byte for each; those of a workgroup take two words."""


def _slot(b: Builder, tiles: Tiles, row: Expr, bucket: Expr, tile: Expr) -> Expr:
    """Return where the count of a bucket in a tile stands: bucket by bucket."""
    line = ix.add(ix.multiply(row, const(BUCKETS)), bucket)
    return ix.add(ix.multiply(line, b.size("tiles", tiles.count)), tile)


def lower_pass(name: str, source: Source, targets: Sequence[Destination], steps: LaunchList) -> None:
    """Append the launches of a pass."""
    limits = steps.target.heuristics
    rows, length = source.rows, source.length
    most, each = (
        limits.workgroup_max if steps.target.subgroup_size else limits.workgroup_max // 2,
        limits.radix_elements,
    )  # who joins in memory needs room for that
    while each > 1 and most * each * sum(t.dtype.itemsize for t in targets) > limits.radix_tile_bytes:
        each //= 2
    size = workgroup_size(-(-length // each), most)
    tiles = Tiles(rows=rows, length=length, size=size, each=each)
    line = tiles.count * BUCKETS
    counts, begins = (steps.temporary(rows * line, int64) for _ in range(2))
    _count(name, source, tiles, counts, steps)
    sum_counts(counts, begins, (rows, line), steps)
    _move(name, source, targets, tiles, begins, steps)


@dataclass(frozen=True, slots=True)
class _Counter:
    """A work-item's counts of each bucket, in the ``words`` of a kernel."""

    b: Builder
    words: tuple[Var, ...]

    @classmethod
    def start(cls, b: Builder) -> _Counter:
        """Return a counter of nothing yet."""
        zero = literal(0, uint64)
        return cls(b, tuple(b.let(zero, "seen", mutable=True) for _ in range(BUCKETS // _LANES)))

    def see(self, bucket: Expr) -> Expr:
        """Count one element more; return how many of its bucket the work-item saw before."""
        b, (low, high) = self.b, self.words
        first = b.let(ix.less(bucket, const(_LANES)), "first")
        shift = b.let(Cast(ix.multiply(ix.modulo(bucket, const(_LANES)), const(8)), uint64), "shift")
        one = b.let(Apply("bitwise_left_shift", (literal(1, uint64), shift), uint64), "one")
        none = literal(0, uint64)
        before = b.let(_bits(Select(first, low, high, uint64), shift, 255), "before")
        b.assign(low, Apply("add", (low, Select(first, one, none, uint64)), uint64))
        b.assign(high, Apply("add", (high, Select(first, none, one, uint64)), uint64))
        return before

    def wide(self) -> tuple[Var, ...]:
        """Return the counts in 16 bits: a word for the even buckets of each, one for the odd ones."""
        mask, counts = literal(0x00FF00FF00FF00FF, uint64), []
        for word in self.words:
            for shift in (0, 8):
                moved = Apply("bitwise_right_shift", (word, literal(shift, uint64)), uint64)
                counts.append(self.b.let(Apply("bitwise_and", (moved, mask), uint64), "wide", mutable=True))
        return tuple(counts)


_SUMS: Final = ProductReducer(
    parts=tuple(Reducer(op="sum", dtypes=(uint64,)) for _ in range(2 * BUCKETS // _LANES))
)


def _bits(word: Expr, shift: Expr, mask: int) -> Expr:
    low = Apply("bitwise_right_shift", (word, shift), uint64)
    return Cast(Apply("bitwise_and", (low, literal(mask, uint64)), uint64), INDEX)


def _of(words: State, bucket: int) -> Expr:
    """Return the count of a bucket."""
    word, lane = divmod(bucket, _LANES)
    return _bits(words[2 * word + lane % 2], literal(lane // 2 * 16, uint64), 0xFFFF)


def _of_one(b: Builder, words: State, bucket: Expr) -> Expr:
    """Return the same of a bucket that is known to the work-item."""
    odd = b.let(Apply("equal", (ix.modulo(bucket, const(2)), ONE), bool_), "odd")
    low, high = (b.let(Select(odd, words[k + 1], words[k], uint64), "word") for k in (0, 2))
    word = Select(ix.less(bucket, const(_LANES)), low, high, uint64)
    lane = ix.quotient(ix.modulo(bucket, const(_LANES)), const(2))
    return _bits(word, Cast(ix.multiply(lane, const(16)), uint64), 0xFFFF)


def _count(name: str, source: Source, tiles: Tiles, counts: int, steps: LaunchList) -> None:
    """Append what counts. A count stands behind its own place, so that the sums are of what is before."""
    kernel = TileKernel.begin(f"{name}_count", source, tiles, steps)
    b, workgroup = kernel.b, kernel.workgroup
    counter = _Counter.start(b)
    with b.loop(ZERO, const(tiles.each), kind="unroll", prefix="u") as u:
        at = b.let(ix.add(ix.add(kernel.start, kernel.item), ix.multiply(u, const(tiles.size))), "at")
        with b.when(ix.less(at, kernel.length)):
            counter.see(b.let(source.bucket(b, kernel.read(kernel.row, at)), "bucket"))
    totals = workgroup.reduce_across(_SUMS, counter.wide())
    b.buffer("counts", int64, writes=True)
    with b.when(ix.less(kernel.item, const(BUCKETS))):
        own = b.let(Cast(_of_one(b, totals, kernel.item), int64), "own")
        count = b.size("tiles", tiles.count)
        line, first = ix.multiply(const(BUCKETS), count), ix.add(ix.multiply(kernel.item, count), kernel.tile)
        after = b.let(ix.add(first, ONE), "after")
        with b.when(ix.less(after, line)):
            b.store("counts", ix.add(ix.multiply(kernel.row, line), after), own)
        with b.when(ix.less(after, const(2))):
            b.store("counts", ix.multiply(kernel.row, line), literal(0, int64))
    kernel.finish([], steps, counts=counts)


def _move(
    name: str, source: Source, targets: Sequence[Destination], tiles: Tiles, begins: int, steps: LaunchList
) -> None:
    """Append what puts the elements of a tile in order among themselves, then where they belong."""
    kernel = TileKernel.begin(f"{name}_move", source, tiles, steps)
    b, workgroup, each = kernel.b, kernel.workgroup, tiles.each
    counter = _Counter.start(b)
    lanes = vector_width(steps.target, known_divisor(tiles.length, each), [t.dtype for t in targets])
    own, held = ([b.fresh(what) for _ in targets] for what in ("own", "held"))
    buckets, ranks, sorted_, starts, shifts = map(b.fresh, ("buckets", "ranks", "sorted", "starts", "shifts"))
    begin = b.let(ix.add(kernel.start, ix.multiply(kernel.item, const(each))), "begin")

    def look(first: Expr, u: Expr = ZERO) -> None:
        u = ix.add(first, u)
        parts = tuple(b.let(e, "part") for e in kernel.read(kernel.row, b.let(ix.add(begin, u), "at")))
        bucket = b.let(source.bucket(b, parts), "bucket")
        for array, target in zip(own, targets, strict=True):
            b.store(array, u, parts[target.part])
        b.store(buckets, u, Cast(bucket, int32))
        b.store(ranks, u, Cast(counter.see(bucket), int32))

    for k in range(0, each, lanes):
        with b.when(ix.less(ix.add(begin, const(k)), kernel.length)):
            if lanes > 1:
                emit_vector(b, lanes, partial(look, const(k)))
            else:
                look(const(k))
    none = literal(0, uint64)
    before, whole = workgroup.exclusive_scan(_SUMS, counter.wide(), (none,) * len(_SUMS.parts))
    b.buffer("begins", int64)
    with b.when(ix.less(kernel.item, const(BUCKETS))):
        start = b.let(ZERO, "start", mutable=True)
        for k in range(BUCKETS - 1):
            with b.when(ix.less(const(k), kernel.item)):
                b.assign(start, ix.add(start, _of(whole, k)))
        b.store(starts, kernel.item, Cast(start, int32))
        first = Cast(Load("begins", _slot(b, tiles, kernel.row, kernel.item, kernel.tile), int64), INDEX)
        b.store(shifts, kernel.item, Cast(ix.subtract(first, start), int64))
    b.emit(Barrier())
    with (
        b.loop(ZERO, const(each), kind="unroll", prefix="u") as u,
        b.when(ix.less(ix.add(begin, u), kernel.length)),
    ):
        bucket = b.let(Cast(Load(buckets, u, int32), INDEX), "bucket")
        ahead = ix.add(Cast(Load(starts, bucket, int32), INDEX), _of_one(b, before, bucket))
        place = b.let(ix.add(ahead, Cast(Load(ranks, u, int32), INDEX)), "place")
        b.store(sorted_, place, Cast(bucket, uint8))
        for array, to, target in zip(own, held, targets, strict=True):
            b.store(to, place, Load(array, u, target.dtype))
    b.emit(Barrier())
    with b.loop(ZERO, const(each), kind="unroll", prefix="u") as u:
        number = b.let(ix.add(kernel.item, ix.multiply(u, const(tiles.size))), "number")
        with b.when(ix.less(ix.add(kernel.start, number), kernel.length)):
            shift = Cast(Load(shifts, Cast(Load(sorted_, number, uint8), INDEX), int64), INDEX)
            there = b.let(ix.add(shift, number), "to")
            for k, (array, target) in enumerate(zip(held, targets, strict=True)):
                out = b.buffer(f"to{k}", target.dtype, writes=True)
                b.store(out, target.place(b, kernel.row, there), Load(array, number, target.dtype))
    b.emit(Barrier())  # before the next tile's elements come
    whole_tile = tiles.size * each
    arrays = [Array(array, t.dtype, each) for array, t in zip(own, targets, strict=True)]
    arrays += [Array(array, int32, each) for array in (buckets, ranks)]
    arrays += [Array(array, t.dtype, whole_tile, "shared") for array, t in zip(held, targets, strict=True)]
    arrays += [Array(sorted_, uint8, whole_tile, "shared"), Array(starts, int32, BUCKETS, "shared")]
    arrays.append(Array(shifts, int64, BUCKETS, "shared"))
    kernel.finish(arrays, steps, begins=begins, **{f"to{k}": target.slot for k, target in enumerate(targets)})
