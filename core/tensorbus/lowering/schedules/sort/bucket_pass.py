"""Bucket pass: brings elements into the order of their buckets, stably, for sorts and scatters.

One pass counts the elements of each bucket, works out where each bucket begins, and moves the elements there
in order. Rows are cut into chunks where there are too few of them to keep the device busy: into how many, one
among them, is no choice of a schedule but a number of this one. No two work-items write to one place, so the
result never depends on timing. Work-items have passes of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ....dtypes.definition import DType
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.index_expr import ONE, ZERO, const
from ...ir.kernel_task import LaunchList, Loops, parallel_loops
from ...ir.loop_ir import INDEX, Apply, Assign, Cast, Expr, Load

BITS = 8
BUCKETS = 1 << BITS

Read = Callable[[Expr, Expr], tuple[Expr, ...]]
"""What is known of the element of a row at a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The origin of elements.

    ``open(b)`` returns how to read them in a kernel, and the slots of the buffers that this takes.
    ``bucket(b, element)`` returns the number of its bucket, an index.
    """

    rows: int
    length: int
    open: Callable[[Builder], tuple[Read, dict[str, int]]]
    bucket: Callable[[Builder, tuple[Expr, ...]], Expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The destination of one part of each element: ``part`` is its number, ``place`` that in the buffer."""

    part: int
    dtype: DType
    slot: int
    place: Callable[[Builder, Expr, Expr], Expr]


def packed_rows(length: int) -> Callable[[Builder, Expr, Expr], Expr]:
    """Return the place of an element where rows lie one behind the other."""
    return lambda b, row, at: ix.add(ix.multiply(row, b.size("length", length)), at)


def distribute(name: str, source: Source, targets: Sequence[Destination], steps: LaunchList) -> None:
    """Append a pass over rows, or over chunks of rows that are few."""
    if chunks(source.rows, source.length, steps) == 1:
        _whole_rows(name, source, targets, steps)
    else:
        distribute_with_starts(name, source, targets, steps)


def distribute_with_starts(
    name: str, source: Source, targets: Sequence[Destination], steps: LaunchList
) -> int:
    """Append a pass over chunks of rows; return the slot of the buckets' beginnings.

    That buffer has ``chunks(...)`` entries for each bucket; the first of them is where the bucket begins.
    """
    count = chunks(source.rows, source.length, steps)
    counts = steps.temporary(source.rows * BUCKETS * count, INDEX)
    _count(name, source, count, counts, steps)
    _begin(name, source.rows, count, counts, steps)
    _move(name, source, targets, count, counts, steps)
    return counts


def chunks(rows: int, length: int, steps: LaunchList) -> int:
    """Return into how many pieces each row is cut."""
    limits = steps.target.heuristics
    return max(
        1,
        min(
            -(-steps.target.tasks_to_fill // rows),
            length // limits.bucket_pass_min_chunk,
            limits.bucket_pass_max_chunks,
        ),
    )


def _counted(b: Builder, source: Source, read: Read, row: Expr, start: Expr, stop: Expr) -> str:
    """Emit the count of the elements of each bucket between two places of a row; return the array of them."""
    counters = b.array(INDEX, BUCKETS)
    with b.loop(ZERO, const(BUCKETS)) as k:
        b.store(counters, k, ZERO)
    with b.loop(start, stop) as at:
        bucket = b.let(source.bucket(b, read(row, at)), "bucket")
        b.store(counters, bucket, ix.add(Load(counters, bucket, INDEX), ONE))
    return counters


def _whole_rows(name: str, source: Source, targets: Sequence[Destination], steps: LaunchList) -> None:
    b = Builder(name)
    (row,), loops = parallel_loops(b, [b.size("rows", source.rows)], [source.rows])
    read, slots = source.open(b)
    length = b.size("length", source.length)
    counters = _counted(b, source, read, row, ZERO, length)
    total = b.let(ZERO, "total", mutable=True)
    with b.loop(ZERO, const(BUCKETS)) as k:
        own = b.let(Load(counters, k, INDEX), "own")
        b.store(counters, k, total)
        b.emit(Assign(total, ix.add(total, own)))
    with b.loop(ZERO, length) as at:
        _put(b, source, targets, row, read(row, at), counters)
    steps.add(b.finish(loops, task=steps.target.row_per_task), {**slots, **_outs(targets)})


def _put(
    b: Builder,
    source: Source,
    targets: Sequence[Destination],
    row: Expr,
    element: tuple[Expr, ...],
    counters: str,
) -> None:
    """Move one element to the next place of its bucket."""
    parts = tuple(b.let(e, "part") for e in element)
    bucket = b.let(source.bucket(b, parts), "bucket")
    to = b.let(Load(counters, bucket, INDEX), "to")
    for k, target in enumerate(targets):
        b.store(b.buffer(f"to{k}", target.dtype, writes=True), target.place(b, row, to), parts[target.part])
    b.store(counters, bucket, ix.add(to, ONE))


def _outs(targets: Sequence[Destination]) -> dict[str, int]:
    return {f"to{k}": target.slot for k, target in enumerate(targets)}


def _cut(b: Builder, source: Source, count: int) -> tuple[Expr, Expr, Expr, Expr, Loops]:
    """Return the row, the chunk, its bounds, and the loops over all chunks of all rows."""
    number = b.size("chunks", count)
    (row, chunk), loops = parallel_loops(b, [b.size("rows", source.rows), number], [source.rows, count])
    length = b.size("length", source.length)
    size = b.size("chunk", -(-source.length // count))
    start = b.let(ix.minimum(ix.multiply(chunk, size), length), "start")
    stop = b.let(ix.minimum(ix.add(start, size), length), "stop")
    return row, chunk, start, stop, loops


def _slot_of(b: Builder, row: Expr, bucket: Expr, chunk: Expr, count: int) -> Expr:
    line = ix.add(ix.multiply(row, const(BUCKETS)), bucket)
    return ix.add(ix.multiply(line, b.size("chunks", count)), chunk)


def _count(name: str, source: Source, count: int, counts: int, steps: LaunchList) -> None:
    b = Builder(f"{name}_count")
    row, chunk, start, stop, loops = _cut(b, source, count)
    read, slots = source.open(b)
    counters = _counted(b, source, read, row, start, stop)
    b.buffer("counts", INDEX, writes=True)
    with b.loop(ZERO, const(BUCKETS)) as k:
        b.store("counts", _slot_of(b, row, k, chunk, count), Load(counters, k, INDEX))
    steps.add(b.finish(loops, task=steps.target.row_per_task), {**slots, "counts": counts})


def _begin(name: str, rows: int, count: int, counts: int, steps: LaunchList) -> None:
    """Append what turns counts, in place, into the number of elements before each chunk of each bucket."""
    b = Builder(f"{name}_begin")
    (row,), loops = parallel_loops(b, [b.size("rows", rows)], [rows])
    b.buffer("counts", INDEX, writes=True)
    length = b.let(ix.multiply(const(BUCKETS), b.size("chunks", count)), "length")
    total = b.let(ZERO, "total", mutable=True)
    with b.loop(ZERO, length) as k:
        at = b.let(ix.add(ix.multiply(row, length), k), "at")
        own = b.let(Load("counts", at, INDEX), "own")
        b.store("counts", at, total)
        b.emit(Assign(total, ix.add(total, own)))
    steps.add(b.finish(loops, task=steps.target.row_per_task), {"counts": counts})


def _move(
    name: str, source: Source, targets: Sequence[Destination], count: int, counts: int, steps: LaunchList
) -> None:
    b = Builder(f"{name}_move")
    row, chunk, start, stop, loops = _cut(b, source, count)
    read, slots = source.open(b)
    b.buffer("counts", INDEX)
    counters = b.array(INDEX, BUCKETS)
    with b.loop(ZERO, const(BUCKETS)) as k:
        b.store(counters, k, Load("counts", _slot_of(b, row, k, chunk, count), INDEX))
    with b.loop(start, stop) as at:
        _put(b, source, targets, row, read(row, at), counters)
    named = {**slots, "counts": counts, **_outs(targets)}
    steps.add(b.finish(loops, task=steps.target.row_per_task), named)


def digit(key: Expr, shift: Expr, bits: int) -> Expr:
    """Return so many bits of an unsigned key, from ``shift`` on, which is of the same dtype."""
    d = key.dtype
    low = Apply("bitwise_right_shift", (key, shift), d)
    return Cast(Apply("bitwise_and", (low, literal((1 << bits) - 1, d)), d), INDEX)
