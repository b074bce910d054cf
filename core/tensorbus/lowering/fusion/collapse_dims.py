"""Joining axes that every operand loops over as one: most kernels are of rank 1 or 2, whatever the shape.

A kernel is rewritten over fewer axes; its meaning stays the same.
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
    """The loops over the axes of a domain: ``order``, then ``groups`` of neighbours joined."""

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


def collapse(task: KernelTask) -> KernelTask:
    """Return an equal task over as few axes as its operands allow."""
    root = task.root
    if root.op in REDUCTIONS:
        return _collapse_reduction(task)
    if root.op in SCANS and _is_plain(root.inputs[0], task):
        domain = root.inputs[0].spec.shape
        kinds = [
            None if k == root.attrs["axis"] else 0 if k < root.attrs["axis"] else 1
            for k in range(len(domain))
        ]
        axes = _join_all(root.inputs[0], task, domain, kinds, row_major(domain))
        operand, moved = _rewrite(root.inputs[0], task, domain, axes)
        axis = next(k for k, g in enumerate(axes.groups) if g == (root.attrs["axis"],))
        new_root = replace(
            root, inputs=(operand,), attrs={"axis": axis}, spec=Spec(axes.shape(domain), root.spec.dtype)
        )
        return replace(task, root=new_root, **moved)
    if root.op in ("pad", "concat", "slice_update") and all(id(x) in task.inputs for x in root.inputs):
        return _collapse_moved(task)
    if _is_plain(root, task, root.spec.shape):
        domain = root.spec.shape
        axes = _join_all(root, task, domain, [0] * len(domain), row_major(domain))
        new_root, moved = _rewrite(root, task, domain, axes)
        return replace(task, root=new_root, **moved)
    return task


def before_reshapes(task: KernelTask) -> KernelTask:
    """Return an equal map over the axes that reshapes join or split, where all of them have the same ones.

    What it stores lies in the same order. Otherwise each element would be divided into its places, which
    costs little only where many items wait for memory side by side.
    """
    domain = task.root.spec.shape
    outside = _up_to_reshapes(task)
    reshapes = [node for node in outside if node.op == "reshape"]
    shapes = {node.inputs[0].spec.shape for node in reshapes}
    if len(shapes) != 1 or 0 in domain or task.strides is not None:
        return task
    (shape,) = shapes
    leaves = dict(task.inputs)
    behind = Graph(inputs=(), outputs=tuple(node.inputs[0] for node in reshapes))
    inside = _with_reshaped_leaves(behind, task, leaves)

    def rule(old: Node, inputs: tuple[Node, ...]) -> Node:
        spec = Spec(shape, old.spec.dtype)
        if id(old) in task.scalars or old.op == "constant":
            return old
        if id(old) in task.inputs:
            leaf = Node(op="input", spec=spec)
            leaves[id(leaf)] = replace(task.inputs[id(old)], shape=shape, strides=row_major(shape))
            return leaf
        if old.op == "reshape":
            return inside[old.inputs[0]]
        if old.op in ("full", "broadcast_to"):
            return replace(old, inputs=inputs, attrs={**old.attrs, "shape": shape}, spec=spec)
        return replace(old, inputs=inputs, spec=spec if old.spec.shape == domain else old.spec)

    done = rebuild(outside, rule)
    return replace(task, root=done[task.root], inputs=leaves)


def _up_to_reshapes(task: KernelTask) -> list[Node]:
    """Return a map's nodes from its reshapes on, in order; none where it has other nodes.

    Beside them there may be numbers, and operands that lie packed.
    """
    domain = task.root.spec.shape
    stack, seen = [task.root], set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        alone = id(node) in task.scalars or node.op in ("constant", "full")
        if alone or (node.spec.shape == domain and (node.op == "reshape" or _lies_packed(node, task))):
            continue
        number = node.op == "broadcast_to" and node.inputs[0].spec.shape == ()
        same = node.op in ELEMENTWISE and all(x.spec.shape in ((), domain) for x in node.inputs)
        if id(node) in task.inputs or not (number or same):
            return []
        stack.extend(node.inputs)
    return [node for node in task.graph if id(node) in seen]


def _with_reshaped_leaves(graph: Graph, task: KernelTask, leaves: dict[int, Layout]) -> dict[Node, Node]:
    """Return the nodes of a graph in which reshapes of what lies packed are operands, which are added."""

    def rule(old: Node, _: tuple[Node, ...]) -> Node | None:
        if old.op != "reshape" or not _lies_packed(old.inputs[0], task):
            return None
        leaf = Node(op="input", spec=old.spec)
        layout = task.inputs[id(old.inputs[0])]
        leaves[id(leaf)] = replace(layout, shape=old.spec.shape, strides=row_major(old.spec.shape))
        return leaf

    return rebuild(graph, rule)


def _lies_packed(node: Node, task: KernelTask) -> bool:
    return id(node) in task.inputs and task.inputs[id(node)].is_contiguous


def _collapse_reduction(task: KernelTask) -> KernelTask:
    root, operand = task.root, task.root.inputs[0]
    domain, reduced = operand.spec.shape, set(root.attrs["axis"])
    remaining = [n for k, n in enumerate(domain) if k not in reduced]
    steps = iter(row_major(tuple(remaining)))
    out = [0 if k in reduced else next(steps) for k in range(len(domain))]
    if not _is_plain(operand, task):
        attrs = {**root.attrs, "keepdims": False}
        return replace(task, root=replace(root, attrs=attrs, spec=Spec(tuple(remaining), root.spec.dtype)))
    alone = root.op in ("argmax", "argmin")
    kinds = [None if alone and k in reduced else int(k in reduced) for k in range(len(domain))]
    far = [max((abs(s[k]) for s in _strides(operand, task, domain)), default=0) for k in range(len(domain))]
    order = sorted(range(len(domain)), key=lambda k: -far[k]) if 0 not in domain else range(len(domain))
    axes = _join_all(operand, task, domain, kinds, out, order)
    new_operand, moved = _rewrite(operand, task, domain, axes)
    shape = axes.shape(domain)
    over = tuple(k for k, g in enumerate(axes.groups) if g[0] in reduced)
    spec = Spec(tuple(n for k, n in enumerate(shape) if k not in over), root.spec.dtype)
    strides = tuple(s for k, s in enumerate(axes.strides(out)) if k not in over)
    return replace(
        task, root=replace(root, inputs=(new_operand,), attrs={"axis": over, "keepdims": False}, spec=spec),
        strides=strides, **moved,
    )  # fmt: skip


def _collapse_moved(task: KernelTask) -> KernelTask:
    """Join the axes that a pad, concat or slice_update leaves alone."""
    root = task.root
    domain = root.spec.shape
    rank = len(domain)
    if 0 in domain or any(0 in x.spec.shape for x in root.inputs):
        return task
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
    strides = [task.inputs[id(x)].strides for x in root.inputs] + [row_major(domain)]
    axes = join(domain, kinds, strides, range(rank))
    leaves: dict[int, Layout] = {}
    inputs = []
    for x in root.inputs:
        layout = task.inputs[id(x)]
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
    return replace(task, root=new_root, inputs=leaves)


def _is_plain(node: Node, task: KernelTask, domain: Shape | None = None) -> bool:
    """Return whether ``node`` reads every leaf at its own index, up to broadcasting.

    ``domain`` is given where its axes keep their order: random words of that shape count through it.
    """
    stack, seen, states = [node], set(), set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(node) in task.inputs or id(node) in task.scalars:
            continue
        if node.op == "random_bits" and node.spec.shape == domain and id(node.inputs[0]) in task.inputs:
            states.add(id(node.inputs[0]))
            continue
        if node.op not in _PLAIN:
            return False
        stack.extend(node.inputs)
    return not states & seen


def _aligned(layout: Layout, domain: Shape) -> Shape:
    lead = len(domain) - len(layout.shape)
    return (0,) * lead + tuple(0 if n == 1 else s for n, s in zip(layout.shape, layout.strides, strict=True))


def _strides(node: Node, task: KernelTask, domain: Shape) -> list[Shape]:
    strides, stack, seen = [], [node], set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if id(node) in task.inputs:
            strides.append(_aligned(task.inputs[id(node)], domain))
        elif node.op == "random_bits":
            strides.append(row_major(domain))
        else:
            stack.extend(node.inputs)
    return strides


def _join_all(
    node: Node, task: KernelTask, domain: Shape, kinds: Sequence[int | None], out: Sequence[int],
    order: Sequence[int] | None = None,
) -> _Axes:  # fmt: skip
    operands = [*_strides(node, task, domain), out]
    if 0 in domain:
        operands = []
    return join(domain, kinds, operands, range(len(domain)) if order is None else order)


def _rewrite(node: Node, task: KernelTask, domain: Shape, axes: _Axes) -> tuple[Node, dict[str, Any]]:
    leaves: dict[int, Layout] = {}
    scalars: dict[int, int] = {}
    shape = axes.shape(domain)
    nodes = topological([node])
    states = {x: Node(op="input", spec=x.spec) for n in nodes if n.op == "random_bits" for x in n.inputs}

    def rule(old: Node, inputs: tuple[Node, ...]) -> Node:
        spec = Spec(shape, old.spec.dtype)
        if old.op == "random_bits":
            (state,) = inputs
            leaves[id(state)] = task.inputs[id(old.inputs[0])]
            return replace(old, inputs=(state,), attrs={"shape": shape}, spec=spec)
        if id(old) in task.inputs:
            layout = task.inputs[id(old)]
            leaf = Node(op="input", spec=spec)
            leaves[id(leaf)] = replace(layout, shape=shape, strides=axes.strides(_aligned(layout, domain)))
            return leaf
        if id(old) in task.scalars:
            leaf = Node(op="input", spec=old.spec)
            scalars[id(leaf)] = task.scalars[id(old)]
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
