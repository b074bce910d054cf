"""The schedule of what normalizes rows: softmax, layer norm and their kin in one kernel.

An item takes a row and goes over it once for each reduction and once for the result, while the row is in its
cache. It pays where these walks are in vectors; other devices and rows keep a kernel for each reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from ..graph.graph import Graph, Node
from ..ops.op import Spec
from ..strided import row_major
from . import index as ix
from .builder import Builder, Launch
from .collapse import join
from .families import REDUCTIONS
from .index import ZERO
from .ir import Expr
from .job import Job, Steps, spread
from .layout import Layout, Shape
from .pull import ELEMENTWISE, Index, Leaf, Pull
from .reduce import SHORT
from .reducer import Reducer, State
from .walks import walk_vectors
from .widen import Walk

FIRST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """A job whose nodes are of shape ``domain``, of a row each, or broadcast to them."""

    job: Job
    domain: Shape
    first: int
    """The first of the axes that make a row; the others number the rows."""


def lower_rows(job: Job, steps: Steps, costly: frozenset[str]) -> bool:
    """Append the one launch of a job that normalizes rows; False, and nothing, where it is no such job."""
    target = steps.target
    if not target.solo_rows or not target.wide_ops or job.root.op not in ELEMENTWISE:
        return False
    found = _find(job)
    if found is None:
        return False
    made = _collapsed(found)
    rows, length = prod(made.domain[: made.first]), prod(made.domain[made.first :])
    if (
        made.first == len(made.domain)
        or made.domain[-1] < SHORT
        or (rows < target.groups // FIRST and length >= 1 << 15)
    ):
        return False
    launch = _emit(made, steps, costly)
    if launch is None:
        return False
    steps.add(*launch)
    return True


def _find(job: Job) -> _Rows | None:
    """Return the job as one over rows: reductions over the same last axes, everything else elementwise."""
    domain = job.root.spec.shape
    rank = len(domain)
    axes: tuple[int, ...] | None = None
    for node in job.graph:
        shape = node.spec.shape
        if id(node) in job.leaves or id(node) in job.scalars or node.op == "constant":
            continue
        if node.op in REDUCTIONS:
            operand = node.inputs[0].spec.shape
            given: tuple[int, ...] = node.attrs["axis"]
            plain = operand == domain and node.attrs["keepdims"] and not node.op.startswith("arg")
            if not plain or given != tuple(range(rank - len(given), rank)) or axes not in (None, given):
                return None
            axes = given
        elif node.op not in ELEMENTWISE and node.op != "broadcast_to":
            return None
        if len(shape) > rank:
            return None
    if not axes or 0 in domain:
        return None
    return _Rows(job=job, domain=domain, first=axes[0])


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def _collapsed(rows: _Rows) -> _Rows:
    """Return the job with neighbouring axes joined where every leaf walks them as one."""
    job, domain, rank = rows.job, rows.domain, len(rows.domain)
    strides = [row_major(domain)]
    for layout in job.leaves.values():
        given = zip(layout.shape, layout.strides, strict=True)
        lead = (0,) * (rank - len(layout.shape))
        strides.append(lead + tuple(0 if n == 1 else s for n, s in given))
    kinds = [int(k >= rows.first) for k in range(rank)]
    groups = join(domain, kinds, strides, range(rank)).groups
    done: dict[int, Node] = {}
    leaves: dict[int, Layout] = {}
    scalars: dict[int, int] = {}
    over = tuple(k for k, g in enumerate(groups) if g[0] >= rows.first)

    def joined(shape: Shape) -> Shape:
        wide = _padded(shape, rank)
        return tuple(prod(wide[k] for k in g) for g in groups)

    for old in job.graph:
        spec = Spec(joined(old.spec.shape), old.spec.dtype)
        if id(old) in job.scalars or old.op == "constant":
            made = replace(old)
            scalars.update({id(made): job.scalars[id(old)]} if id(old) in job.scalars else {})
        elif id(old) in job.leaves:
            given_layout = job.leaves[id(old)]
            made = Node(op="input", spec=spec)
            steps = (0,) * (rank - len(given_layout.shape)) + given_layout.strides
            leaves[id(made)] = replace(
                given_layout, shape=spec.shape, strides=tuple(steps[g[-1]] for g in groups)
            )
        else:
            attrs = dict(old.attrs)
            if old.op in REDUCTIONS:
                attrs["axis"] = over
            if old.op == "broadcast_to":
                attrs["shape"] = spec.shape
            made = replace(old, inputs=tuple(done[id(x)] for x in old.inputs), attrs=attrs, spec=spec)
        done[id(old)] = made
    new = replace(job, root=done[id(job.root)], leaves=leaves, scalars=scalars)
    first = len(groups) - len(over)
    return _Rows(job=new, domain=joined(domain), first=first)


def _emit(rows: _Rows, steps: Steps, costly: frozenset[str]) -> tuple[Launch, dict[str, int]] | None:
    job, first, domain = rows.job, rows.first, rows.domain
    b = Builder(f"tb_rows_{job.root.op}")
    pull, slots = job.puller(b)
    root = job.root
    lengths = pull.lengths(root)
    outer, loops = spread(b, lengths[:first], domain[:first])
    over = list(range(first, len(domain)))
    whole: list[Expr] = [ZERO] * len(domain)
    whole[:first] = outer
    bound: dict[int, tuple[Expr, Expr]] = {k: (ZERO, lengths[k]) for k in over}
    row_index: Index = tuple(whole)
    out = b.buffer("out", root.spec.dtype, writes=True)
    ops, lanes = steps.target.wide_ops, steps.target.lanes
    kept = _worth_keeping(job.graph, root, domain, costly)
    one = tuple(1 if k >= first else n for k, n in enumerate(domain))
    for node in job.graph:
        if node.op in REDUCTIONS:
            (operand,) = node.inputs
            fresh = [part for part in kept if part in _behind(operand) and not pull.is_leaf(part)]
            reducer = Reducer.of(node.op, operand.spec.dtype)
            element = partial(_element, b, pull, reducer, operand, fresh, lambda i: ix.flatten(i, lengths))
            state = walk_vectors(b, reducer, list(whole), over, bound, element, lanes, ops)
            if state is None:
                return None
            pull.define(node, row_index, state[0])
            for part in fresh:
                layout = Layout(job.out, domain, row_major(domain))
                pull.read(part, Leaf(buffer=out, strides="out", offset="out", layout=layout))
        elif node.op in ELEMENTWISE and node.spec.shape == one and id(node) not in job.leaves:
            pull.define(node, row_index, b.let(pull.value(node, row_index), "row"))
    if not _store(b, pull, rows, list(whole), out, ops, lanes):
        return None
    return b.finish(loops, solo=True), {**slots, "out": job.out}


def _element(
    b: Builder, pull: Pull, reducer: Reducer, operand: Node, fresh: Sequence[Node],
    place: Callable[[Index], Expr], index: Index,
) -> State:  # fmt: skip
    """Return what an element adds to a reduction; ``fresh`` nodes are stored on the way, for later walks."""
    with pull.scope():
        for part in fresh:
            b.store("out", place(index), pull.value(part, index))
        return reducer.element(pull.value(operand, index), ZERO)


def _behind(node: Node) -> list[Node]:
    """Return what a node is computed from in the same walk: reductions end it."""
    found: list[Node] = []
    stack = [node]
    while stack:
        at = stack.pop()
        if any(at is f for f in found):
            continue
        found.append(at)
        if at.op not in REDUCTIONS:
            stack.extend(at.inputs)
    return found


def _worth_keeping(graph: Graph, root: Node, domain: Shape, costly: frozenset[str]) -> list[Node]:
    """Return the costly node that more than one walk needs, where the result's memory can hold it."""
    walks = [_behind(n.inputs[0]) for n in graph if n.op in REDUCTIONS] + [_behind(root)]
    found = [
        n for n in graph
        if n.op in costly and n.spec == Spec(domain, root.spec.dtype) and n is not root
        and sum(any(n is m for m in walk) for walk in walks) > 1
    ]  # fmt: skip
    return found[-1:]


def _store(
    b: Builder, pull: Pull, rows: _Rows, index: list[Expr], out: str, ops: frozenset[str], lanes: int
) -> bool:
    """Emit the walk that stores the result."""
    root = rows.job.root
    lengths = pull.lengths(root)
    last = len(index) - 1

    def emit(k: Expr) -> State:
        index[last] = k
        with pull.scope():
            b.store(out, ix.flatten(index, lengths), pull.value(root, tuple(index)))
        return ()

    def nest(axes: Sequence[int]) -> bool:
        if axes[0] == last:
            walk = Walk(ops=ops, lanes=lanes, emit=emit, combine=lambda b, before, new: ())
            return walk.loop(b, ZERO, lengths[last], (), ())
        with b.loop(ZERO, lengths[axes[0]]) as i:
            index[axes[0]] = i
            return nest(axes[1:])

    return nest(range(rows.first, len(index)))
