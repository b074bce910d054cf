"""Products that add what stands behind them, a bias or a value of their shape, for devices that can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

from ...backend_interface.graph import Graph, Node
from ...ops.definition import Spec
from ...ops.matmul.matmul_epilogue import ENDS, NAME
from ..rewrite import rebuild, rewrite
from .scatter_patterns import reshaped


def fuse_activations(graph: Graph, serves: Callable[[Node], bool]) -> Graph:
    """Return ``graph`` with the ops of ``ENDS`` in the products, and the sums with a row, that they follow.

    What is between is read by nothing else, and the device ``serves`` the node.
    """
    if not any(node.op in ENDS for node in graph):
        return graph
    sums = _Sums(graph, serves)
    sums.once = {node for node, count in sums.uses.items() if count == 1}
    done: dict[Node, Node] = {}

    def rule(node: Node, inputs: tuple[Node, ...]) -> Node | None:
        return sums.ended(node, done) if node.op in ENDS else None

    rebuild(graph, rule, done)
    return Graph(inputs=graph.inputs, outputs=tuple([done[x] for x in graph.outputs]))


def fuse_sums(graph: Graph, serves: Callable[[Node], bool]) -> Graph:
    """Return ``graph`` with such sums in their products, as ``affine``, where the device ``serves`` the node.

    A product that something else reads as well stays what it is. So does one whose sum would first have to be
    stored: what is added is an input, what a product made, or a value that others read too.
    """
    sums = _Sums(graph, serves)

    def rule(node: Node, original: Node) -> Node | None:
        once = sums.uses.get(original, 0) == 1
        if once:
            sums.once.add(node)
        elif node.op not in ("constant", "broadcast_to"):
            sums.shared.add(node)
        fused = sums.fused(node) if node.op == "add" else None
        if fused is not None and once:
            sums.once |= {fused, fused.inputs[0]}
        return fused

    return rewrite(graph, rule)


@dataclass(slots=True)
class _Sums:
    graph: Graph
    serves: Callable[[Node], bool]
    uses: dict[Node, int] = field(default_factory=dict)
    once: set[Node] = field(default_factory=set)
    shared: set[Node] = field(default_factory=set)

    def __post_init__(self) -> None:
        for node in self.graph.outputs:
            self.uses[node] = self.uses.get(node, 0) + 2  # a result is kept as it is
        for node in self.graph:
            for x in node.inputs:
                self.uses[x] = self.uses.get(x, 0) + 1

    def fused(self, node: Node) -> Node | None:
        """Return a sum as a product that adds, of another shape; None where it is none."""
        for one, other in (node.inputs, node.inputs[::-1]):
            product = self._product(one)
            if product is None or {one.spec.dtype, other.spec.dtype} != {node.spec.dtype}:
                continue
            added = self._added(product, other) if one.spec.shape == node.spec.shape else None
            if added is None or any(x.spec.shape == added.spec.shape for x in product.inputs[2:]):
                continue
            operands = (*product.inputs, added)
            candidate = Node(
                op=NAME,
                inputs=operands,
                attrs={"ends": ""},
                spec=product.spec,
                recompute_tag=node.recompute_tag,
            )
            if self.serves(candidate):
                return reshaped(candidate, node.spec.shape)
        return None

    def ended(self, node: Node, done: Mapping[Node, Node]) -> Node | None:
        """Return a product, or its sum with a row, that goes on as ``node`` does; None where it is none."""
        (before,) = node.inputs
        if before not in self.once or before.spec.dtype != node.spec.dtype:
            return None
        orders: tuple[tuple[Node, ...], ...] = ((before,),)
        if before.op == "add":
            orders = (before.inputs, before.inputs[::-1])
        for product, *row in orders:
            if product.op != "matmul" or product not in self.once or product.spec != before.spec:
                continue
            x, y = (done[operand] for operand in product.inputs)
            spec = Spec((prod(x.spec.shape[:-1]), y.spec.shape[-1]), product.spec.dtype)
            if len(y.spec.shape) != 2 or any(not _is_row(r, spec.shape[1]) for r in row):
                continue
            rows = [_of_shape(done[r], spec.shape[1:]) for r in row]
            operands = (_of_shape(x, (spec.shape[0], x.spec.shape[-1])), y, *rows)
            fused = Node(
                op=NAME, inputs=operands, attrs={"ends": node.op}, spec=spec, recompute_tag=node.recompute_tag
            )
            if self.serves(fused):
                return _of_shape(fused, node.spec.shape)
        return None

    def _product(self, node: Node) -> Node | None:
        """Return the product of two matrices that is behind ``node``, and nothing else reads."""
        columns = node.spec.shape[-1:]
        while node.op == "reshape" and node in self.once:
            (node,) = node.inputs
        if node.op not in ("matmul", NAME) or node not in self.once or node.spec.shape[-1:] != columns:
            return None
        if node.attrs.get("ends"):
            return None
        return node if all(len(x.spec.shape) == 2 for x in node.inputs[:2]) else None

    def _added(self, product: Node, other: Node) -> Node | None:
        rows, columns = product.spec.shape
        base = other
        while base.op in ("reshape", "broadcast_to"):
            (base,) = base.inputs
        if other.op != "broadcast_to" and prod(other.spec.shape) == rows * columns and rows > 1:
            is_stored = base.op in ("input", "matmul", NAME) or base in self.shared
            return _of_shape(other, (rows, columns)) if is_stored else None
        return _of_shape(base, (columns,)) if _is_row(base, columns) else None


def _is_row(node: Node, columns: int) -> bool:
    """Return whether a node is a row that is stored, or parts of one that come together for little.

    Those are parameters that were gathered.
    """
    while node.op == "reshape":
        (node,) = node.inputs
    shape = node.spec.shape
    return node.op in ("input", "concat") and shape[-1:] == (columns,) and prod(shape) == columns


def _of_shape(x: Node, shape: tuple[int, ...]) -> Node:
    return x if x.spec == Spec(shape, x.spec.dtype) else reshaped(x, shape)
