"""A group of roots as a graph over one domain: every node has the domain's axes, or 1 in their place.

Broadcasts, permutations and added axes are gone: leaves are strided views over the domain. Neighbouring axes
that everything loops over as one are one. What reads elements elsewhere stays as it was, behind a reshape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from ...backend_interface.graph import Graph, Node
from ...graph.rewrite import rebuild, topological
from ...ops.definition import Spec
from ..ir.builder import Builder
from ..ir.inline import Inliner
from ..ir.kernel_task import KernelTask
from ..ir.layout import Layout, Shape
from ..op_sets import ELEMENTWISE, REDUCTIONS
from .access_map import FREE, Access, operand_access, picked, reduced_access
from .collapse_dims import join
from .fusion_groups import FusionGroup

PLAIN: Final = ELEMENTWISE | REDUCTIONS | {"input", "constant", "full"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A root that is stored: in ``slot``, with these strides over the domain (0 where it has no axis)."""

    node: Node
    slot: int
    strides: Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainKernel:
    """A group in canonical form. ``nodes`` are all roots, ``outputs`` those that are stored, in order.

    ``reduced`` are the axes of ``domain`` that reductions go over, all of them with ``keepdims``.
    """

    domain: Shape
    reduced: tuple[int, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]
    inputs: Mapping[int, Layout]
    scalars: Mapping[int, int]
    sized: bool = False

    @property
    def graph(self) -> Graph:
        """The group as a graph of its own."""
        return Graph(inputs=(), outputs=self.nodes)

    def inliner(self, builder: Builder) -> tuple[Inliner, dict[str, int]]:
        """Return what reads this group, and the slots of the buffer names it uses."""
        task = KernelTask(
            root=self.nodes[-1], inputs=self.inputs, scalars=self.scalars, out=-1, sized=self.sized
        )
        return task.inliner(builder, self.graph)

    def spans_domain(self, node: Node) -> bool:
        """Return whether a node has an element for each of the domain, not only for each row."""
        shape = node.spec.shape
        whole = len(shape) == len(self.domain)
        return not self.reduced or (whole and any(shape[k] != 1 for k in self.reduced))


class _Canonical:
    def __init__(self, group: FusionGroup, where: Mapping[int, Layout], scalars: Mapping[int, int]) -> None:
        self.domain = group.domain
        self.reduced = group.reduced
        self.own = {where[k].slot for k in group.roots}
        self.where = where
        self.scalars = scalars
        self.leaves: dict[int, Layout] = {}
        self.numbers: dict[int, int] = {}
        self.done: dict[tuple[int, Access | None], Node] = {}

    def shape(self, access: Access) -> Shape:
        return tuple(n if k in access else 1 for k, n in enumerate(self.domain))

    def at(self, root: Node, access: Access) -> Node:
        """Return the canonical form of a node, without recursion: chains can be long."""
        stack: list[tuple[Node, Access, bool]] = [(root, access, False)]
        while stack:
            node, at, ready = stack.pop()
            if (id(node), at) in self.done or (not ready and self.leaf(node, at)):
                continue
            before = self.operands(node, at)
            if before is None:
                self.done[id(node), at] = self.non_aligned(node, at)
            elif ready or not before:
                self.done[id(node), at] = self.over_domain(node, at, [self.done[id(x), a] for x, a in before])
            else:
                stack.append((node, at, True))
                stack.extend((x, a, False) for x, a in reversed(before))
        return self.done[id(root), access]

    def root(self, node: Node, access: Access) -> Node:
        """Return the canonical form of a root: a broadcast, which has no node of its own, needs one here."""
        canonical_node, shape = self.at(node, access), self.shape(access)
        if canonical_node.spec.shape == shape:
            return canonical_node
        dtype = canonical_node.spec.dtype
        return Node(op="cast", inputs=(canonical_node,), attrs={"dtype": dtype}, spec=Spec(shape, dtype))

    def leaf(self, node: Node, at: Access | None) -> bool:
        """Make the input that stands for a node which is not computed here, where it is none."""
        layout = self.view(node)
        if id(node) in self.scalars or node.op == "constant":
            input_node = replace(node) if node.op == "constant" else Node(op="input", spec=node.spec)
            if id(node) in self.scalars:
                self.numbers[id(input_node)] = self.scalars[id(node)]
        elif layout is not None:
            input_node = Node(
                op="input", spec=Spec(node.spec.shape if at is None else self.shape(at), node.spec.dtype)
            )
            if at is not None:
                strides = [0] * len(self.domain)
                for k, s in zip(at, layout.strides, strict=True):
                    if k is not None:
                        strides[k] += s
                layout = replace(layout, shape=input_node.spec.shape, strides=tuple(strides))
            self.leaves[id(input_node)] = layout
        else:
            return False
        self.done[id(node), at] = input_node
        return True

    def operands(self, node: Node, at: Access) -> list[tuple[Node, Access]] | None:
        """Return what a node is computed from, and how it is reached; None where it is read elsewhere."""
        if node.op in REDUCTIONS:
            below = reduced_access(node, at, self.reduced)
            return None if below is None else [(node.inputs[0], below)]
        if len(self.reduced) == 1 and (pick := picked(node, at, self.reduced)) is not None:
            x, *indices = node.inputs
            if x.spec.shape[pick[0]] == self.domain[self.reduced[0]]:
                whole = tuple(self.reduced[0] if k == FREE else k for k in pick[1])
                return [(x, whole), (indices[pick[0]], at)]
        if not node.inputs and node.op != "full":
            return None
        reached: list[tuple[Node, Access]] = []
        for x in node.inputs:
            below = operand_access(node, x, at)
            if below is None:
                return None
            reached.append((x, below))
        return reached

    def over_domain(self, node: Node, at: Access, inputs: list[Node]) -> Node:
        """Return a node over the domain, of operands over the domain."""
        spec = Spec(self.shape(at), node.spec.dtype)
        if node.op in REDUCTIONS:
            attrs = {"axis": self.reduced, "keepdims": True}
            return replace(node, inputs=tuple(inputs), attrs=attrs, spec=spec)
        if node.op == "gather":
            return Node(op="pick", inputs=tuple(inputs), attrs={"axis": self.reduced[0]}, spec=spec)
        if node.op in ELEMENTWISE:
            return replace(node, inputs=tuple(inputs), spec=spec)
        if node.op == "full":
            return replace(node, attrs={**node.attrs, "shape": spec.shape}, spec=spec)
        return inputs[0]  # a broadcast, a permutation, an axis more or less: the same elements

    def non_aligned(self, node: Node, at: Access) -> Node:
        """Return a node that stays as it is, over the axes of the domain."""
        for each in self.dependencies(node):
            if (id(each), None) not in self.done and (each is node or not self.leaf(each, None)):
                inputs = tuple(self.done[id(x), None] for x in each.inputs)
                self.done[id(each), None] = replace(each, inputs=inputs)
        aligned = self.done[id(node), None]
        order = sorted((k for k, a in enumerate(at) if a is not None), key=lambda k: at[k] or 0)
        axes = (*(k for k, a in enumerate(at) if a is None), *order)
        if axes != tuple(range(len(axes))):
            permuted = Spec(tuple(node.spec.shape[k] for k in axes), node.spec.dtype)
            aligned = Node(op="permute_dims", inputs=(aligned,), attrs={"axes": axes}, spec=permuted)
        shape = self.shape(at)
        if aligned.spec.shape != shape:
            aligned = Node(
                op="reshape", inputs=(aligned,), attrs={"shape": shape}, spec=Spec(shape, node.spec.dtype)
            )
        return aligned

    def dependencies(self, root: Node) -> list[Node]:
        """Return the nodes that one is computed from in this kernel, operands first."""
        return topological([root], lambda node: node is not root and self.view(node) is not None)

    def view(self, node: Node) -> Layout | None:
        """Return where a node lies that is not made here."""
        layout = self.where.get(id(node))
        return None if layout is None or layout.slot in self.own else layout


def canonical(
    group: FusionGroup, where: Mapping[int, Layout], scalars: Mapping[int, int], stored: Mapping[int, int],
    sized: bool = False,
) -> DomainKernel:  # fmt: skip
    """Return a group over its domain. ``where`` has what lies in buffers, ``stored`` its roots' slots."""
    form = _Canonical(group, where, scalars)
    nodes = {k: form.root(root.node, root.access) for k, root in group.roots.items()}
    outputs = []
    for k, root in group.roots.items():
        if k in stored:
            strides = [0] * len(group.domain)
            for a, s in zip(root.access, where[k].strides, strict=True):
                if a is not None:
                    strides[a] = s
            outputs.append(Output(node=nodes[k], slot=stored[k], strides=tuple(strides)))
    kernel = DomainKernel(
        domain=group.domain, reduced=group.reduced, nodes=tuple(nodes.values()), outputs=tuple(outputs),
        inputs=form.leaves, scalars=form.numbers, sized=sized,
    )  # fmt: skip
    return collapsed(kernel)


def collapsed(fused: DomainKernel) -> DomainKernel:
    """Return the group with neighbouring axes joined where reads and outputs loop over them as one."""
    graph, domain = fused.graph, fused.domain
    rank = len(domain)
    if 0 in domain or any(n.op not in PLAIN for n in graph):
        return fused
    kinds = [int(k in fused.reduced) for k in range(rank)]
    strides = [
        tuple(s if n != 1 else 0 for n, s in zip(x.shape, x.strides, strict=True))
        for x in fused.inputs.values()
    ]
    full = [o.strides for o in fused.outputs if fused.spans_domain(o.node)]
    rows = [o.strides for o in fused.outputs if not fused.spans_domain(o.node)]
    groups = join(domain, kinds, [*strides, *full, *rows], range(rank)).groups
    if len(groups) == rank:
        return fused

    def merged(shape: Shape) -> Shape:
        return tuple(prod(shape[k] for k in g) for g in groups) if len(shape) == rank else shape

    over = tuple(k for k, g in enumerate(groups) if g[0] in fused.reduced)
    leaves: dict[int, Layout] = {}
    scalars: dict[int, int] = {}

    def rule(old: Node, inputs: tuple[Node, ...]) -> Node:
        attrs = {"axis": over, "keepdims": True} if old.op in REDUCTIONS else old.attrs
        new = replace(old, inputs=inputs, attrs=attrs, spec=Spec(merged(old.spec.shape), old.spec.dtype))
        if id(old) in fused.inputs:
            layout = fused.inputs[id(old)]
            strides = tuple(layout.strides[g[-1]] for g in groups)
            leaves[id(new)] = replace(layout, shape=new.spec.shape, strides=strides)
        if id(old) in fused.scalars:
            scalars[id(new)] = fused.scalars[id(old)]
        return new

    done = rebuild(graph, rule)
    outputs = tuple(
        replace(o, node=done[o.node], strides=tuple(o.strides[g[-1]] for g in groups)) for o in fused.outputs
    )
    return replace(
        fused, domain=merged(domain), reduced=over, nodes=tuple(done[n] for n in fused.nodes),
        outputs=outputs, inputs=leaves, scalars=scalars,
    )  # fmt: skip
