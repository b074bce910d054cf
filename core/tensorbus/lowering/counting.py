"""A pass that brings elements into the order of their buckets, for light items: each takes a few neighbours.

An item counts its elements in two words, a byte for each bucket. The running sum of all counts, bucket by
bucket, says where the elements of an item begin in each (Satish, Harris and Garland: "Designing efficient
sorting algorithms for manycore GPUs", 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..dtypes import int64, uint64
from ..graph.graph import Node
from ..ops.op import Spec
from . import index as ix
from .builder import Builder, literal
from .index import ONE, ZERO, const
from .ir import INDEX, Apply, Cast, Expr, Load, Select, Var
from .job import Job, Loops, Steps, spread
from .layout import packed
from .scan import lower_scan

if TYPE_CHECKING:
    from .distribute import Source, Target

BITS: Final = 4
"""Of a key in one pass."""
EACH: Final = (32, 16, 8)
"""How many elements an item takes: the most where that leaves work for all; fewer than a byte can count."""
_WORD: Final = 8
"""Buckets that a word counts."""


def lower_pass(name: str, source: Source, targets: Sequence[Target], steps: Steps) -> None:
    """Append the launches of a pass."""
    count = source.rows * source.length
    each = next((n for n in EACH if count >= n * steps.target.items), EACH[-1])
    chunks = -(-source.length // each)
    line = chunks << BITS
    counts = steps.temporary(source.rows * line, int64)
    begins = steps.temporary(source.rows * line, int64)
    _count(name, source, each, counts, steps)
    given = Node(op="input", inputs=(), attrs={}, spec=Spec((source.rows, line), int64))
    total = Node(op="cumulative_sum", inputs=(given,), attrs={"axis": 1}, spec=given.spec)
    leaves = {id(given): packed(counts, (source.rows, line))}
    lower_scan(Job(root=total, leaves=leaves, scalars={}, out=begins), steps)
    _move(name, source, targets, each, begins, steps)


def _cut(b: Builder, source: Source, each: int) -> tuple[Expr, Expr, Expr, Expr, Loops]:
    """Return the row, the chunk, its bounds, and the loops over all chunks of all rows."""
    chunks = -(-source.length // each)
    lengths = [b.size("rows", source.rows), b.size("chunks", chunks)]
    (row, chunk), loops = spread(b, lengths, [source.rows, chunks])
    start = b.let(ix.multiply(chunk, const(each)), "start")
    stop = b.let(ix.minimum(ix.add(start, const(each)), b.size("length", source.length)), "stop")
    return row, chunk, start, stop, loops


def _slot(row: Expr, bucket: Expr, chunk: Expr, chunks: Expr) -> Expr:
    return ix.add(ix.multiply(ix.add(ix.multiply(row, const(1 << BITS)), bucket), chunks), chunk)


class _Counts:
    """How many elements of each bucket an item has seen."""

    def __init__(self, b: Builder) -> None:
        self.b = b
        none = literal(0, uint64)
        self.words: tuple[Var, ...] = tuple(
            b.let(none, "seen", mutable=True) for _ in range((1 << BITS) // _WORD)
        )

    def add(self, bucket: Expr) -> Expr:
        """Count one element more; return how many of its bucket were seen before."""
        b, (low, high) = self.b, self.words
        first = b.let(ix.less(bucket, const(_WORD)), "first")
        shift = b.let(Cast(ix.multiply(ix.modulo(bucket, const(_WORD)), const(8)), uint64), "shift")
        one = b.let(Apply("bitwise_left_shift", (literal(1, uint64), shift), uint64), "one")
        none = literal(0, uint64)
        before = b.let(_byte(Select(first, low, high, uint64), shift), "before")
        b.assign(low, Apply("add", (low, Select(first, one, none, uint64)), uint64))
        b.assign(high, Apply("add", (high, Select(first, none, one, uint64)), uint64))
        return before

    def of(self, bucket: int) -> Expr:
        """Return how many of a bucket were seen."""
        return _byte(self.words[bucket // _WORD], literal(8 * (bucket % _WORD), uint64))


def _byte(word: Expr, shift: Expr) -> Expr:
    low = Apply("bitwise_right_shift", (word, shift), uint64)
    return Cast(Apply("bitwise_and", (low, literal(255, uint64)), uint64), INDEX)


def _count(name: str, source: Source, each: int, counts: int, steps: Steps) -> None:
    """Append what counts. A count stands behind its own place, so that the sums are of what is before."""
    b = Builder(f"{name}_count")
    row, chunk, start, stop, loops = _cut(b, source, each)
    chunks = b.size("chunks", -(-source.length // each))
    read, slots = source.open(b)
    seen = _Counts(b)
    with b.loop(start, stop) as at:
        seen.add(b.let(source.bucket(b, read(row, at)), "bucket"))
    b.buffer("counts", int64, writes=True)
    with b.when(ix.less(chunk, ONE)):
        b.store("counts", _slot(row, ZERO, ZERO, chunks), literal(0, int64))
    last = (1 << BITS) - 1
    for k in range(last):
        place = _slot(row, const(k), ix.add(chunk, ONE), chunks)
        b.store("counts", place, Cast(seen.of(k), int64))
    with b.when(ix.less(ix.add(chunk, ONE), chunks)):
        place = _slot(row, const(last), ix.add(chunk, ONE), chunks)
        b.store("counts", place, Cast(seen.of(last), int64))
    steps.add(b.finish(loops), {**slots, "counts": counts})


def _move(name: str, source: Source, targets: Sequence[Target], each: int, begins: int, steps: Steps) -> None:
    b = Builder(f"{name}_move")
    row, chunk, start, stop, loops = _cut(b, source, each)
    chunks = b.size("chunks", -(-source.length // each))
    read, slots = source.open(b)
    b.buffer("begins", int64)
    seen = _Counts(b)
    with b.loop(start, stop) as at:
        parts = tuple(b.let(e, "part") for e in read(row, at))
        bucket = b.let(source.bucket(b, parts), "bucket")
        begin = Cast(Load("begins", _slot(row, bucket, chunk, chunks), int64), INDEX)
        to = b.let(ix.add(begin, seen.add(bucket)), "to")
        for k, target in enumerate(targets):
            place = target.place(b, row, to)
            b.store(b.buffer(f"to{k}", target.dtype, writes=True), place, parts[target.part])
    made = {f"to{k}": target.slot for k, target in enumerate(targets)}
    steps.add(b.finish(loops), {**slots, **made, "begins": begins})
