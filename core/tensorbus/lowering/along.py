"""A scatter along the last axis by light items: a group takes a row, and its indices in their order.

Items side by side read an index each. Of those that name one place the first adds what all of them bring, one
after the other; of several stores the last one stays. So results never depend on timing. Rows that find room
are in the memory of the group meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

from ..dtypes import DType, bool_, float32, uint32
from ..graph.graph import Node
from . import index as ix
from .builder import Builder, literal
from .collapse import collapse
from .index import ONE, ZERO, const
from .ir import INDEX, Apply, Array, Barrier, Cast, Expr, Load, Report, Select, Var
from .job import Job, Steps
from .pointwise import lower_map
from .pull import ERRORS
from .target import Target
from .team import Team

SHARED: Final = 1 << 15
"""The bytes of a row and of values that a group may share."""
AHEAD: Final = 4
"""How many indices an item reads before it writes."""
ROWS: Final = 64
"""So many rows keep the device busy, however long each of them takes."""
LIMIT: Final = 1 << 31
"""Rows are shorter: their places are told by 32 bits."""
SOON: Final = 1 << 13
"""Up to so many indices a row is done sooner than all indices are put in order."""


def serves(node: Node, target: Target) -> bool:
    """Return whether a scatter's indices name each element's own row, and any place in it."""
    x, _, *indices = node.inputs
    shape = indices[0].spec.shape
    if not target.peers or not len(indices) == len(shape) == len(x.spec.shape) > 1:
        return False
    if shape[:-1] != x.spec.shape[:-1] or 0 in shape or 0 in x.spec.shape:
        return False
    if x.spec.shape[-1] >= LIMIT or (prod(shape[:-1]) < ROWS and shape[-1] > SOON):
        return False
    return all(_is_own(i, k) for k, i in enumerate(indices[:-1]))


def _is_own(node: Node, axis: int) -> bool:
    """Return whether each element of a node is its place along an axis."""
    alone = node.spec.shape[axis] == 1
    while node.op in ("broadcast_to", "reshape"):
        (inner,) = node.inputs
        shape, within = node.spec.shape, inner.spec.shape
        if alone:
            axis = 0
        elif node.op == "broadcast_to":
            axis -= len(shape) - len(within)
            if axis < 0 or within[axis] == 1:
                return False
        else:
            wide, kept = ([k for k, n in enumerate(s) if n != 1] for s in (shape, within))
            if [shape[k] for k in wide] != [within[k] for k in kept]:
                return False
            axis = kept[wide.index(axis)]
        node = inner
    if alone and node.op == "constant":
        return bool(node.attrs["value"] == 0)
    counts = node.op == "iota" and axis == 0 and (node.attrs["length"] == 1 or not alone)
    return counts and node.attrs["start"] == 0 and node.attrs["step"] == 1


def _kept(length: int, dtype: DType) -> int:
    """Return the elements of the array that rows are kept in, one for many lengths; 0: they find no room."""
    whole = 1 << (length - 1).bit_length()
    return whole if whole * max(dtype.itemsize, float32.itemsize) <= SHARED else 0


def lower_along(job: Job, steps: Steps, op: str | None) -> None:
    """Append the launches of such a scatter; without ``op`` the last value stays."""
    x, value, *indices = job.root.inputs
    dtype, index = job.root.spec.dtype, indices[-1]
    size = _kept(x.spec.shape[-1], dtype)
    if not size:
        lower_map(collapse(replace(job, root=x)), steps)
    b = Builder(f"tb_scatter_{job.root.attrs['mode']}_along")
    pull, slots = job.puller(b)
    lengths = pull.lengths(x)
    count, length = pull.length(index, len(lengths) - 1), lengths[-1]
    lane, number = Var("i0", INDEX), Var("i1", INDEX)
    outer = b.all(ix.unflatten(number, lengths[:-1]))
    team = Team(b, steps.target.swap, steps.target.swap)
    b.buffer("out", dtype, writes=True)
    b.buffer(ERRORS, INDEX, writes=True)
    begin = b.let(ix.multiply(number, length), "begin")
    row, first = (b.fresh("row"), ZERO) if size else ("out", begin)
    brought = "" if op is None else b.fresh("brought")
    if size:

        def fetch(place: Expr) -> None:
            with pull.scope():
                b.store(row, place, pull.value(x, (*outer, place)))

        team.walk((ZERO, length), fetch)

    def read(place: Expr) -> tuple[Expr, Expr, Expr, Expr]:
        """Return where an index points, whether it exists, the number that tells it, and what it brings."""
        inside = b.let(ix.less(place, count), "inside")
        with pull.scope():
            at = (*outer, b.let(ix.minimum(place, ix.subtract(count, ONE)), "at"))
            found = b.let(Cast(pull.value(index, at), INDEX), "found")
            new = b.let(pull.value(value, at), "new")
        known = ix.both([Apply("less_equal", (ZERO, found), bool_), ix.less(found, length)])
        exists = b.let(ix.both([inside, known]), "exists")
        with b.when(ix.both([inside, Apply("logical_not", (exists,), bool_)])):
            b.emit(Report(ERRORS, pull.code("scatter"), found, length))
        name = Cast(Select(exists, found, length, INDEX), uint32)
        return found, exists, b.let(name, "name"), new

    width = team.size
    turns = ix.quotient(ix.add(count, const(AHEAD * width - 1)), const(AHEAD * width))
    own = b.let(Cast(lane, uint32), "own")
    bit = Apply("bitwise_left_shift", (literal(1, uint32), own), uint32)
    earlier = b.let(Apply("subtract", (bit, literal(1, uint32)), uint32), "earlier")
    with b.loop(ZERO, turns, prefix="turn") as turn:
        start = b.let(ix.add(ix.multiply(turn, const(AHEAD * width)), lane), "start")
        taken = [read(ix.add(start, const(k * width))) for k in range(AHEAD)]
        if brought:
            for k, (_, _, _, new) in enumerate(taken):
                b.store(brought, ix.add(lane, const(k * width)), new)
        peers = [b.let(Apply("peers", (name,), uint32), "same") for _, _, name, _ in taken]
        b.emit(Barrier())
        for k, (found, exists, _, new) in enumerate(taken):
            same = peers[k]
            last = _is(Apply("bitwise_right_shift", (same, own), uint32), 1)
            if op is None:
                with b.when(ix.both([exists, last])):
                    b.store(row, ix.add(first, found), new)
            else:
                with b.when(ix.both([exists, _is(Apply("bitwise_and", (same, earlier), uint32), 0)])):
                    place = b.let(ix.add(first, found), "place")
                    total = b.let(Apply(op, (Load(row, place, dtype), new), dtype), "total", mutable=True)
                    with b.when(Apply("logical_not", (last,), bool_)):
                        _add_others(b, op, total, same, brought, k * width, lane, width)
                    b.store(row, place, total)
            b.emit(Barrier())
    if size:
        team.walk((ZERO, length), lambda place: b.store("out", ix.add(begin, place), Load(row, place, dtype)))
        b.emit(Barrier())  # before the next row comes
    rows = prod(x.spec.shape[:-1])
    made = team.finished(b.finish([team.loop, (number, b.size("rows", rows), rows)]))
    arrays = [Array(row, dtype, size, "shared")] if size else []
    arrays += [Array(brought, dtype, AHEAD * width, "shared")] if brought else []
    body = (*arrays, *made.kernel.body)
    steps.add(replace(made, kernel=replace(made.kernel, body=body)), {**slots, "out": job.out})


def _is(value: Expr, number: int) -> Expr:
    return Apply("equal", (value, literal(number, uint32)), bool_)


def _add_others(
    b: Builder, op: str, total: Var, same: Expr, brought: str, begin: int, lane: Expr, width: int
) -> None:
    """Emit what adds to ``total`` what those of ``same`` bring that stand behind an item."""
    with b.loop(ix.add(lane, ONE), const(width), prefix="other") as other:
        bits = Apply("bitwise_right_shift", (same, Cast(other, uint32)), uint32)
        with b.when(_is(Apply("bitwise_and", (bits, literal(1, uint32)), uint32), 1)):
            new = Load(brought, ix.add(other, const(begin)), total.dtype)
            b.assign(total, Apply(op, (total, new), total.dtype))
