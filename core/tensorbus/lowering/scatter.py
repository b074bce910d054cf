"""The schedule of scatter: each item owns a range of rows and walks all indices in order.

So the result never depends on timing: sums add up in the order of the indices, and the last of several stores
wins.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ..dtypes import bool_
from ..graph.graph import Node
from . import index as ix
from .builder import Builder
from .index import ONE, ZERO
from .ir import INDEX, Apply, Cast, Expr, Load, Report, Var
from .job import Job, Steps
from .pointwise import lower_map
from .pull import ERRORS, Pull

OWNERS = 64


def lower_scatter(job: Job, steps: Steps) -> None:
    """Append the copy of ``x`` and the walk over the indices."""
    x, value, *indices = job.root.inputs
    lower_map(_copy(job, x), steps)
    if 0 in value.spec.shape:
        return
    depth = len(indices)
    rest = x.spec.shape[depth:]
    rows = max(prod(x.spec.shape[:depth]), 1)
    wide = max(prod(rest), 1)
    solo = steps.target.solo_rows
    owners = max(1, min(OWNERS if solo else -(-steps.target.items // wide), OWNERS, rows))
    b = Builder(f"tb_scatter_{job.root.attrs['mode']}")
    pull, slots = job.puller(b)
    owner, column = Var("i0", INDEX), Var("i1", INDEX)
    loops: list[tuple[Var, Expr, int]] = [(owner, b.size("owners", owners), owners)]
    if rest and not solo:
        owner, column = column, owner
        loops = [(column, b.size("wide", wide), wide), (owner, loops[0][1], owners)]
    per = b.size("per", -(-rows // owners))
    low = b.let(ix.multiply(owner, per), "low")
    high = b.let(ix.add(low, per), "high")
    shape = [pull.length(indices[0], k) for k in range(len(indices[0].spec.shape))]
    with b.loop(ZERO, b.size("count", prod(indices[0].spec.shape))) as walk, pull.scope():
        at = ix.unflatten(walk, shape)
        row = _row(b, pull, job, at, [var for var, _, _ in loops])
        inside = [row[1], Apply("less_equal", (low, row[0]), bool_), ix.less(row[0], high)]
        with b.when(ix.both(inside)):
            if rest and solo:
                with b.loop(ZERO, b.size("wide", wide)) as k, pull.scope():
                    _write(b, pull, job, at, k, row[0], wide)
            else:
                _write(b, pull, job, at, column if rest else ZERO, row[0], wide)
    steps.add(b.finish(loops, solo=solo), {**slots, "out": job.out})


def _row(b: Builder, pull: Pull, job: Job, at: tuple[Expr, ...], items: list[Var]) -> tuple[Expr, Expr]:
    """Return the row that the indices at ``at`` name, and whether it exists; one item reports where not."""
    x, _, *indices = job.root.inputs
    b.buffer(ERRORS, INDEX, writes=True)
    limits = [pull.length(x, k) for k in range(len(indices))]
    found: list[Expr] = [b.let(Cast(pull.value(i, at), INDEX), "row") for i in indices]
    conditions: list[Expr] = []
    for row, limit in zip(found, limits, strict=True):
        conditions += [Apply("less_equal", (ZERO, row), bool_), ix.less(row, limit)]
    inside = b.let(ix.both(conditions), "ok")
    first = ix.both([ix.less(i, ONE) for i in items])
    with b.when(ix.both([first, Apply("logical_not", (inside,), bool_)])):
        for row, limit in zip(found, limits, strict=True):
            b.emit(Report(ERRORS, pull.code(), row, limit))
    return b.let(ix.flatten(found, limits), "at"), inside


def _write(
    b: Builder, pull: Pull, job: Job, at: tuple[Expr, ...], column: Expr, row: Expr, wide: int
) -> None:
    """Store or add one element: column ``column`` of the row."""
    x, value, *indices = job.root.inputs
    dtype = job.root.spec.dtype
    b.buffer("out", dtype, writes=True)
    tail = ix.unflatten(column, [pull.length(x, k) for k in range(len(indices), len(x.spec.shape))])
    target = b.let(ix.add(ix.multiply(row, b.size("wide", wide)), column), "to")
    new = pull.value(value, (*at, *tail))
    if job.root.attrs["mode"] == "add":
        op = "logical_or" if dtype is bool_ else "add"
        new = Apply(op, (Load("out", target, dtype), new), dtype)
    b.store("out", target, new)


def _copy(job: Job, x: Node) -> Job:
    from .collapse import collapse

    return collapse(replace(job, root=x))
