"""The schedule of scans along the last axis for light items: a group of them takes a row, a tile at a time.

Each item scans a few neighbouring elements by itself, the group scans what these come to, and everybody adds
what stands before. Long rows are cut into chunks, whose totals are known before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from math import prod
from typing import Final

from ..dtypes import bool_
from . import index as ix
from .builder import Builder
from .index import ONE, ZERO, const
from .ir import INDEX, Apply, Array, Barrier, Cast, Expr, Load, Var
from .job import Job, Loops, Steps
from .packets import packet_of, packets
from .reduce import Chunks
from .reducer import Reducer

TEAM: Final = 256
EACH, MOST = 4, 8
"""How many neighbours an item takes; the most where they come in packets."""
SHORT: Final = 64
"""Rows from this length on are worth a group of items."""


def fits(job: Job, steps: Steps) -> bool:
    """Return whether a scan is one for groups of light items."""
    shape, axis = job.root.inputs[0].spec.shape, job.root.attrs["axis"]
    return not steps.target.solo_rows and axis == len(shape) - 1 and shape[axis] >= SHORT


def chunk_size(length: int, count: int) -> int:
    """Return how long ``count`` chunks of a row are: whole tiles each."""
    tile = TEAM * MOST
    return -(-length // (count * tile)) * tile


def lower_team_scan(job: Job, steps: Steps, reducer: Reducer, chunks: Chunks | None, totals: int) -> None:
    """Append the launch. ``totals`` is the slot of what stands before each chunk, where there are chunks."""
    root, operand = job.root, job.root.inputs[0]
    shape, dtype = operand.spec.shape, reducer.dtypes[0]
    b = Builder(f"tb_{root.op}_team")
    pull, slots = job.puller(b)
    lengths = [pull.length(operand, k) for k in range(len(shape))]
    length = chunks.size if chunks is not None else shape[-1]
    swap, stored = steps.target.swap, [operand.spec.dtype, root.spec.dtype]
    whole = packet_of(steps.target, math.gcd(shape[-1], length), stored) if swap else 1
    each = max(EACH, min(whole, MOST))
    team = max(32, min(TEAM, 1 << (-(-length // each) - 1).bit_length()))
    item, row = Var("i0", INDEX), Var("i1", INDEX)
    rows = prod(shape[:-1]) * (chunks.count if chunks is not None else 1)
    loops: Loops = [(item, const(team), team), (row, b.size("rows", rows), rows)]
    start: Expr = ZERO
    stop: Expr = lengths[-1]
    first = reducer.start()[0]
    number: Expr = row
    if chunks is not None:
        number = b.let(ix.modulo(row, b.size("width", prod(shape[:-1]))), "row")
        size = b.size("chunk", chunks.size)
        start = b.let(ix.multiply(ix.quotient(row, b.size("width", prod(shape[:-1]))), size), "start")
        stop = b.let(ix.minimum(ix.add(start, size), lengths[-1]), "stop")
        slots["totals"] = totals
        first = Load(b.buffer("totals", dtype), row, dtype)
    outer = ix.unflatten(number, lengths[:-1])
    before = b.let(first, "before", mutable=True)
    out = b.buffer("out", root.spec.dtype, writes=True)
    own = b.fresh("own")
    shared = (b.fresh("team"),) if swap else (b.fresh("team"), b.fresh("team"))
    with b.loop(ZERO, b.size("tiles", -(-length // (team * each))), prefix="tile") as turn:
        tile = ix.add(start, ix.multiply(turn, const(team * each)))
        total = b.let(reducer.start()[0], "acc", mutable=True)
        begin = b.let(ix.add(tile, ix.multiply(item, const(each))), "begin")

        def read(u: Expr) -> None:
            at = b.let(ix.add(begin, u), "at")
            with b.when(ix.less(at, stop)) if whole < each else nullcontext(), pull.scope():
                state = reducer.element(pull.value(operand, (*outer, at)), ZERO)
                b.assign(total, reducer.combine(b, (total,), state)[0])
            b.store(own, u, total)

        def write(u: Expr) -> None:
            at = b.let(ix.add(begin, u), "at")
            with b.when(ix.less(at, stop)) if whole < each else nullcontext():
                made = reducer.combine(b, (base,), (Load(own, u, dtype),))[0]
                value = made if root.spec.dtype is dtype else Cast(made, root.spec.dtype)
                b.store(out, ix.flatten((*outer, at), lengths), value)

        def all_of(one: Callable[[Expr], None]) -> None:
            if whole == each:
                with b.when(ix.less(begin, stop)):
                    packets(b, each, one)
                return
            with b.loop(ZERO, const(each), kind="unroll", prefix="u") as u:
                one(u)

        all_of(read)
        if swap:
            base, last = _swapped(b, reducer, item, total, before, (shared[0], swap, team))
        else:
            base, last = _shared(b, reducer, item, total, before, (*shared, team))
        all_of(write)
        b.assign(before, reducer.combine(b, (before,), (last,))[0])
        b.emit(Barrier())  # before the next tile's totals come
    made_launch = b.finish(loops)
    arrays = (*(Array(name, dtype, team, "shared") for name in shared), Array(own, dtype, each))
    kernel = replace(made_launch.kernel, body=(*arrays, *made_launch.kernel.body))
    steps.add(replace(made_launch, kernel=kernel, group=team), {**slots, "out": job.out})


def _shared(
    b: Builder, reducer: Reducer, item: Expr, total: Var, before: Var, team: tuple[str, str, int]
) -> tuple[Var, Expr]:
    """Emit the scan of what items found, by memory of the group; return what is before each, and all."""
    here, there, count = team
    dtype, step = total.dtype, 1
    b.store(here, item, total)
    b.emit(Barrier())
    while step < count:
        sum_ = b.let(Load(here, item, dtype), "sum", mutable=True)
        with b.when(ix.less(const(step - 1), item)):
            left = Load(here, ix.subtract(item, const(step)), dtype)
            b.assign(sum_, reducer.combine(b, (left,), (sum_,))[0])
        b.store(there, item, sum_)
        b.emit(Barrier())
        here, there, step = there, here, 2 * step
    base = b.let(before, "base", mutable=True)
    with b.when(ix.less(ZERO, item)):
        left = Load(here, ix.subtract(item, ONE), dtype)
        b.assign(base, reducer.combine(b, (base,), (left,))[0])
    return base, Load(here, const(count - 1), dtype)


def _swapped(
    b: Builder, reducer: Reducer, item: Expr, total: Var, before: Var, team: tuple[str, int, int]
) -> tuple[Var, Expr]:
    """Emit the same by registers of neighbours: pairs of ever longer stretches tell each other their sums."""
    array, swap, count = team
    dtype, apart = total.dtype, 1
    left = b.let(reducer.start()[0], "left", mutable=True)
    lane = b.let(ix.modulo(item, const(swap)), "lane")
    while apart < swap:
        other = b.let(Apply(f"swap_{apart}", (total,), dtype), "other")
        right = ix.less(const(apart - 1), ix.modulo(lane, const(2 * apart)))
        with b.when(right):
            b.assign(left, reducer.combine(b, (other,), (left,))[0])
            b.assign(total, reducer.combine(b, (other,), (total,))[0])
        with b.when(Apply("logical_not", (right,), bool_)):
            b.assign(total, reducer.combine(b, (total,), (other,))[0])
        apart *= 2
    number = b.let(ix.quotient(item, const(swap)), "part")
    with b.when(ix.less(lane, ONE)):
        b.store(array, number, total)
    b.emit(Barrier())
    base = b.let(before, "base", mutable=True)
    whole = b.let(reducer.start()[0], "whole", mutable=True)
    for k in range(count // swap):
        part = b.let(Load(array, const(k), dtype), "sum")
        with b.when(ix.less(const(k), number)):
            b.assign(base, reducer.combine(b, (base,), (part,))[0])
        b.assign(whole, reducer.combine(b, (whole,), (part,))[0])
    b.assign(base, reducer.combine(b, (base,), (left,))[0])
    return base, whole
