"""Joining axes that every operand walks as one, so that most kernels are of rank 1 or 2 whatever the shape.

A job is rewritten over fewer axes; its meaning stays the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...backend_interface.graph import Graph, Node
from ...backend_interface.strided_array import row_major
from ...graph.rewrite import rebuild, topological
from ...ops.definition import Spec
from ..ir.kernel_task import KernelTask
from ..ir.layout import Layout, Shape
from ..op_sets import ELEMENTWISE, REDUCTIONS, SCANS

_PLAIN = ELEMENTWISE | {"constant", "full", "broadcast_to"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axes:
    """How the axes of a domain are walked: ``order``, then ``groups`` of neighbours joined."""

    groups: tuple[tuple[int, ...], ...]

    def shape(self, shape: Shape) -> Shape:
        result = []
        for group in self.groups:
            length = 1
            for k in group:
                length *= shape[k]
            result.append(length)
        return tuple(result)

    def strides(self, strides: Sequence[int]) -> Shape:
        return tuple(strides[group[-1]] for group in self.groups)


def join(
    shape: Shape, kinds: Sequence[int | None], operands: Sequence[Sequence[int]], order: Sequence[int]
) -> _Axes:
    """Return the joined axes of ``shape``. Axes of one kind may be joined; those of kind None never are."""
    groups: list[tuple[int, ...]] = []
    for k in order:
        if shape[k] == 1 and kinds[k] is not None:
            continue
        if groups and kinds[k] is not None and kinds[groups[-1][-1]] == kinds[k]:
            before = groups[-1][-1]
            if all(strides[before] == strides[k] * shape[k] for strides in operands):
                groups[-1] += (k,)
                continue
        groups.append((k,))
    return _Axes(groups=tuple(groups))


def collapse(job: KernelTask) -> KernelTask:
    """Return an equal job over as few axes as its operands allow."""
    root = job.root
    if root.op in REDUCTIONS:
        return _collapse_reduction(job)
    if root.op in SCANS and _is_plain(root.inputs[0], job):
        domain = root.inputs[0].spec.shape
        kinds = [
            None if k == root.attrs["axis"] else 0 if k < root.attrs["axis"] else 1
            for k in range(len(domain))
        ]
        axes = _join_all(root.inputs[0], job, domain, kinds, row_major(domain))
        operand, moved = _rewrite(root.inputs[0], job, domain, axes)
        axis = next(k for k, g in enumerate(axes.groups) if g == (root.attrs["axis"],))
        new_root = replace(
            root, inputs=(operand,), attrs={"axis": axis}, spec=Spec(axes.shape(domain), root.spec.dtype)
        )
        return replace(job, root=new_root, **moved)
    if root.op in ("pad", "concat", "slice_update") and all(id(x) in job.inputs for x in root.inputs):
        return _collapse_moved(job)
    if _is_plain(root, job, root.spec.shape):
        domain = root.spec.shape
        axes = _join_all(root, job, domain, [0] * len(domain), row_major(domain))
        new_root, moved = _rewrite(root, job, domain, axes)
        return replace(job, root=new_root, **moved)
    return job


def before_reshapes(job: KernelTask) -> KernelTask:
    """Return an equal map over the axes that reshapes join or split, where all of them have the same ones.

    What it stores lies in the same order. Otherwise each element would be divided into its places, which
    costs little only where many items wait for memory side by side.
    """
    domain = job.root.spec.shape
    outside = _up_to_reshapes(job)
    reshapes = [node for node in outside if node.op == "reshape"]
    shapes = {node.inputs[0].spec.shape for node in reshapes}
    if len(shapes) != 1 or 0 in domain or job.strides is not None:
        return job
    (shape,) = shapes
    leaves = dict(job.inputs)
    behind = Graph(inputs=(), outputs=tuple(node.inputs[0] for node in reshapes))
    inside = _with_reshaped_leaves(behind, job, leaves)

    def rule(old: Node, inputs: tuple[Node, ...]) -> Node:
        spec = Spec(shape, old.spec.dtype)
        if id(old) in job.scalars or old.op == "constant":
            return old
        if id(old) in job.inputs:
            leaf = Node(op="input", spec=spec)
            leaves[id(leaf)] = replace(job.inputs[id(old)], shape=shape, strides=row_major(shape))
            return leaf
        if old.op == "reshape":
            return inside[old.inputs[0]]
        if old.op in ("full", "broadcast_to"):
            return replace(old, inputs=inputs, attrs={**old.attrs, "shape": shape}, spec=spec)
        return replace(old, inputs=inputs, spec=spec if old.spec.shape == domain else old.spec)

    done = rebuild(outside, rule)
    return replace(job, root=done[job.root], inputs=leaves)


def _up_to_reshapes(job: KernelTask) -> list[Node]:
    """Return a map's nodes from its reshapes on, in order; none where it has other nodes.

    Beside them there may be numbers, and operands that lie packed.
    """
    domain = job.root.spec.shape
    stack, seen = [job.root], set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        alone = id(node) in job.scalars or node.op in ("constant", "full")
        if alone or (node.spec.shape == domain and (node.op == "reshape" or _lies_packed(node, job))):
            continue
        number = node.op == "broadcast_to" and node.inputs[0].spec.shape == ()
        same = node.op in ELEMENTWISE and all(x.spec.shape in ((), domain) for x in node.inputs)
        if id(node) in job.inputs or not (number or same):
            return []
        stack.extend(node.inputs)
    return [node for node in job.graph if id(node) in seen]


def _with_reshaped_leaves(graph: Graph, job: KernelTask, leaves: dict[int, Layout]) -> dict[Node, Node]:
    """Return the nodes of a graph in which reshapes of what lies packed are operands, which are added."""

    def rule(old: Node, _: tuple[Node, ...]) -> Node | None:
        if old.op != "reshape" or not _lies_packed(old.inputs[0], job):
            return None
        leaf = Node(op="input", spec=old.spec)
        layout = job.inputs[id(old.inputs[0])]
        leaves[id(leaf)] = replace(layout, shape=old.spec.shape, strides=row_major(old.spec.shape))
        return leaf

    return rebuild(graph, rule)


def _lies_packed(node: Node, job: KernelTask) -> bool:
    return id(node) in job.inputs and job.inputs[id(node)].is_contiguous


def _collapse_reduction(job: KernelTask) -> KernelTask:
    root, operand = job.root, job.root.inputs[0]
    domain, reduced = operand.spec.shape, set(root.attrs["axis"])
    remaining = [n for k, n in enumerate(domain) if k not in reduced]
    steps = iter(row_major(tuple(remaining)))
    out = [0 if k in reduced else next(steps) for k in range(len(domain))]
    if not _is_plain(operand, job):
        attrs = {**root.attrs, "keepdims": False}
        return replace(job, root=replace(root, attrs=attrs, spec=Spec(tuple(remaining), root.spec.dtype)))
    alone = root.op in ("argmax", "argmin")
    kinds = [None if alone and k in reduced else int(k in reduced) for k in range(len(domain))]
    far = [max((abs(s[k]) for s in _strides(operand, job, domain)), default=0) for k in range(len(domain))]
    order = sorted(range(len(domain)), key=lambda k: -far[k]) if 0 not in domain else range(len(domain))
    axes = _join_all(operand, job, domain, kinds, out, order)
    new_operand, moved = _rewrite(operand, job, domain, axes)
    shape = axes.shape(domain)
    over = tuple(k for k, g in enumerate(axes.groups) if g[0] in reduced)
    spec = Spec(tuple(n for k, n in enumerate(shape) if k not in over), root.spec.dtype)
    strides = tuple(s for k, s in enumerate(axes.strides(out)) if k not in over)
    return replace(
        job, root=replace(root, inputs=(new_operand,), attrs={"axis": over, "keepdims": False}, spec=spec),
        strides=strides, **moved,
    )  # fmt: skip


def _collapse_moved(job: KernelTask) -> KernelTask:
    """Join the axes that a pad, concat or slice_update leaves alone."""
    root = job.root
    domain = root.spec.shape
    rank = len(domain)
    if 0 in domain or any(0 in x.spec.shape for x in root.inputs):
        return job
    a = root.attrs
    touched: list[bool] = [any(x.spec.shape[k] != domain[k] for x in root.inputs) for k in range(rank)]
    if root.op == "concat":
        touched[a["axis"]] = True
    if root.op == "slice_update":
        touched = [t or a["step"][k] != 1 for k, t in enumerate(touched)]
    kinds, kind = [], 0
    for t in touched:
        kind += t
        kinds.append(None if t else kind)
    strides = [job.inputs[id(x)].strides for x in root.inputs] + [row_major(domain)]
    axes = join(domain, kinds, strides, range(rank))
    leaves: dict[int, Layout] = {}
    inputs = []
    for x in root.inputs:
        layout = job.inputs[id(x)]
        node = Node(op="input", spec=Spec(axes.shape(x.spec.shape), x.spec.dtype))
        leaves[id(node)] = replace(layout, shape=node.spec.shape, strides=axes.strides(layout.strides))
        inputs.append(node)
    attrs = {
        key: axes.groups.index((value,)) if key == "axis"
        else tuple(value[g[0]] for g in axes.groups) if isinstance(value, tuple) else value
        for key, value in a.items()
    }  # fmt: skip
    new_root = replace(
        root, inputs=tuple(inputs), attrs=attrs, spec=Spec(axes.shape(domain), root.spec.dtype)
    )
    return replace(job, root=new_root, inputs=leaves)


def _is_plain(node: Node, job: KernelTask, domain: Shape | None = None) -> bool:
    """Return whether ``node`` reads every leaf at its own index, up to broadcasting.

    ``domain`` is given where its axes keep their order: random words of that shape count through it.
    """
    stack, seen, states = [node], set(), set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(node) in job.inputs or id(node) in job.scalars:
            continue
        if node.op == "random_bits" and node.spec.shape == domain and id(node.inputs[0]) in job.inputs:
            states.add(id(node.inputs[0]))
            continue
        if node.op not in _PLAIN:
            return False
        stack.extend(node.inputs)
    return not states & seen


def _aligned(layout: Layout, domain: Shape) -> Shape:
    lead = len(domain) - len(layout.shape)
    return (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(layout.shape, layout.strides, strict=True))


def _strides(node: Node, job: KernelTask, domain: Shape) -> list[Shape]:
    strides, stack, seen = [], [node], set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(node) in job.inputs:
            strides.append(_aligned(job.inputs[id(node)], domain))
        elif node.op == "random_bits":
            strides.append(row_major(domain))
        else:
            stack.extend(node.inputs)
    return strides


def _join_all(
    node: Node, job: KernelTask, domain: Shape, kinds: Sequence[int | None], out: Sequence[int],
    order: Sequence[int] | None = None,
) -> _Axes:  # fmt: skip
    operands = [*_strides(node, job, domain), out]
    if 0 in domain:
        operands = []
    return join(domain, kinds, operands, range(len(domain)) if order is None else order)


def _rewrite(node: Node, job: KernelTask, domain: Shape, axes: _Axes) -> tuple[Node, dict[str, Any]]:
    leaves: dict[int, Layout] = {}
    scalars: dict[int, int] = {}
    shape = axes.shape(domain)
    nodes = topological([node])
    states = {x: Node(op="input", spec=x.spec) for n in nodes if n.op == "random_bits" for x in n.inputs}

    def rule(old: Node, inputs: tuple[Node, ...]) -> Node:
        spec = Spec(shape, old.spec.dtype)
        if old.op == "random_bits":
            (state,) = inputs
            leaves[id(state)] = job.inputs[id(old.inputs[0])]
            return replace(old, inputs=(state,), attrs={"shape": shape}, spec=spec)
        if id(old) in job.inputs:
            layout = job.inputs[id(old)]
            leaf = Node(op="input", spec=spec)
            leaves[id(leaf)] = replace(layout, shape=shape, strides=axes.strides(_aligned(layout, domain)))
            return leaf
        if id(old) in job.scalars:
            leaf = Node(op="input", spec=old.spec)
            scalars[id(leaf)] = job.scalars[id(old)]
            return leaf
        if old.op == "constant":
            return old
        if old.op == "broadcast_to":
            return inputs[0]
        if old.op == "full":
            return replace(old, attrs={**old.attrs, "shape": shape}, spec=spec)
        return replace(old, inputs=inputs, spec=spec)

    rewritten = rebuild(nodes, rule, dict(states))[node]
    if rewritten.spec.shape != shape:  # a number alone
        spec = Spec(shape, node.spec.dtype)
        rewritten = Node(op="broadcast_to", inputs=(rewritten,), attrs={"shape": shape}, spec=spec)
    return rewritten, {"inputs": leaves, "scalars": scalars}
