"""Patterns that derivatives bring along, in the form that devices run best.

A rule is made for a graph, and then sees its nodes one by one, operands rewritten already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import bool_, int64
from ...ops.definition import Spec
from ..rewrite import Rule


def single_scatter(graph: Graph) -> Rule:
    """Return the rule that writes a scatter of one element to each row as a choice, element by element.

    It is what the gradient of ``x[0, 1, 2 ..., index]`` is. Indices out of range are reported by a gather:
    the graph's own by the same index, or one of the columns' numbers. Where nothing but zeros is scattered
    onto, the sum of a row is the one element.
    """
    ones: dict[Node, Node] = {}
    checked = {
        (tuple(id(i) for i in node.inputs[1:]), node.inputs[0].spec.shape)
        for node in graph if node.op == "gather"
    }  # fmt: skip

    def rule(node: Node) -> Node:
        if node.op == "sum" and node.inputs[0] in ones and tuple(node.attrs["axis"]) == (1,):
            return reshaped(ones[node.inputs[0]], node.spec.shape)
        if node.op != "scatter" or node.attrs["mode"] != "add":
            return node
        x, value, *indices = node.inputs
        shape, index_shape = x.spec.shape, indices[0].spec.shape
        axes = [k for k, i in enumerate(indices) if not _numbers_rows(i)]
        known = (tuple(id(i) for i in indices), shape) in checked
        vectors = len(index_shape) == 1 and len(indices) == len(shape) == 2
        rows = vectors and axes == [1] and index_shape[0] == shape[0]
        if not rows:
            return node
        one_hot = _chosen(node, x, value, indices[1], known=known)
        if is_zeros(x) and node.spec.dtype.is_floating:
            column = Spec((shape[0], 1), node.spec.dtype)
            zero = Node(
                op="constant",
                attrs={"value": 0.0},
                spec=Spec((), column.dtype),
                recompute_tag=node.recompute_tag,
            )
            ones[one_hot] = Node(
                op="add",
                inputs=(zero, reshaped(value, column.shape)),
                spec=column,
                recompute_tag=node.recompute_tag,
            )
        return one_hot

    return rule


def _numbers_rows(node: Node) -> bool:
    """Return whether an index counts rows: in few bits numbers begin anew, and floats leave some out."""
    while node.op in ("cast", "reshape") and len(node.spec.shape) == 1 and _counts(node):
        node = node.inputs[0]
    return node.op == "iota" and _counts(node) and int(node.attrs["start"]) == 0 and node.attrs["step"] == 1


def _counts(node: Node) -> bool:
    return node.spec.dtype.is_integer and node.spec.dtype.itemsize >= 4


def _chosen(node: Node, x: Node, value: Node, index: Node, *, known: bool) -> Node:
    rows, columns = x.spec.shape

    def new(op: str, *inputs: Node, spec: Spec, **attrs: Any) -> Node:
        return Node(op=op, inputs=inputs, attrs=attrs, spec=spec, recompute_tag=node.recompute_tag)

    numbers = new("iota", spec=Spec((columns,), int64), length=columns, start=0, step=1, dtype=int64)
    if index.spec.dtype is not int64:
        index = new("cast", index, spec=Spec(index.spec.shape, int64), dtype=int64)
    if not known:
        index = new("gather", numbers, index, spec=index.spec)
    here = new("equal", numbers, reshaped(index, (rows, 1)), spec=Spec(x.spec.shape, bool_))
    both = new("add", x, reshaped(value, (rows, 1)), spec=node.spec)
    return new("where", here, both, x, spec=node.spec)


def scatter_onto(graph: Graph) -> Rule:
    """Return the rule that adds to a sum by scattering onto it, not onto zeros that are then added.

    It is what a weight has that is both looked up in and multiplied by: an embedding that gives logits too.
    """
    uses = uses_of(graph) if any(node.op == "scatter" for node in graph) else {}
    alone: set[int] = set()

    def rule(node: Node) -> Node:
        if uses.get(id(node), 0) == 1 and node.op == "scatter":
            alone.add(id(node))
        if node.op != "add" or not node.spec.dtype.is_floating:
            return node
        for one, other in (node.inputs, node.inputs[::-1]):
            added = id(one) in alone and one.attrs["mode"] == "add" and is_zeros(one.inputs[0])
            if added and one.spec == other.spec == node.spec:
                return replace(one, inputs=(other, *one.inputs[1:]))
        return node

    return rule


def is_zeros(node: Node) -> bool:
    """Return whether a value is zero everywhere."""
    while node.op == "broadcast_to":
        node = node.inputs[0]
    return node.op in ("full", "constant") and node.attrs["value"] == 0


def uses_of(graph: Graph) -> dict[int, int]:
    """Return how often each node is an operand or a result, by its id."""
    uses = Counter([id(n) for n in {*graph.outputs}])
    uses.update([id(x) for node in graph for x in node.inputs])
    return uses


def flat_products(graph: Graph) -> Rule:
    """Return the rule that makes one product of many: of batches and one matrix, and of sums over batches."""
    uses = uses_of(graph)
    once: dict[int, Node] = {}

    def rule(node: Node) -> Node:
        single = uses.get(id(node), 0) == 1
        if node.op == "sum":
            product = _summed(node, once)
            if single and product.op == "matmul":
                once[id(product)] = product
            return product
        if node.op == "permute_dims" and id(node.inputs[0]) in once:
            return _transposed_product(node)
        if node.op != "matmul":
            return node
        product = _flat(node)
        if single:
            once[id(product)] = product
        return product

    return rule


def _summed(node: Node, once: Mapping[int, Node]) -> Node:
    (product,) = node.inputs
    lead = len(product.spec.shape) - 2
    if product.op != "matmul" or lead < 1 or node.attrs["keepdims"] or not node.spec.dtype.is_floating:
        return node
    a, b = product.inputs
    batch = product.spec.shape[:lead]
    whole = a.spec.shape[:-2] == batch == b.spec.shape[:-2] and tuple(node.attrs["axis"]) == tuple(
        range(lead)
    )
    if not whole or id(product) not in once or product.spec.dtype != node.spec.dtype:
        return node
    (m, k), n = a.spec.shape[-2:], b.spec.shape[-1]
    inner = prod(batch) * k
    order = _inner_order(a, b, lead)
    left = reshaped(_permuted(a, (lead, *(lead + 1 if k == lead else k for k in order))), (m, inner))
    right = reshaped(_permuted(b, (*order, lead + 1)), (inner, n))
    return replace(product, inputs=(left, right), spec=node.spec)


def _inner_order(a: Node, b: Node, lead: int) -> tuple[int, ...]:
    """Return in which order to walk the axes that are summed, ``lead`` of batches and that of the product.

    It is that in which the elements of an operand lie before it is permuted, so that no copy is made.
    """
    for x, inner in ((a, lead + 1), (b, lead)):
        if x.op == "permute_dims":
            axes = x.attrs["axes"]
            return tuple(sorted(range(lead + 1), key=lambda k: axes[inner if k == lead else k]))
    return tuple(range(lead + 1))


def _transposed_product(node: Node) -> Node:
    """Return the transpose of a product as the product of the transposes, which are views."""
    (product,) = node.inputs
    if product.op != "matmul":  # a product that was made flat lies behind a reshape
        return node
    rank = len(node.spec.shape)
    last = (*range(rank - 2), rank - 1, rank - 2)
    if product.op != "matmul" or tuple(node.attrs["axes"]) != last:
        return node
    a, b = product.inputs
    if not len(a.spec.shape) == len(b.spec.shape) == rank:
        return node
    if a.spec.dtype != b.spec.dtype or a.spec.shape[:-2] != b.spec.shape[:-2]:
        return node
    return replace(product, inputs=(_permuted(b, last), _permuted(a, last)), spec=node.spec)


def one_copy(graph: Graph) -> Rule:
    """Return the rule that copies what no view shows only once: other shapes are views of that copy."""
    known: dict[int, Node] = {}

    def rule(node: Node) -> Node:
        if node.op != "reshape" or node.inputs[0].op != "permute_dims":
            return node
        first = known.setdefault(id(node.inputs[0]), node)
        return node if first is node else reshaped(first, node.spec.shape)

    return rule


def _flat(node: Node) -> Node:
    a, b = node.inputs
    if 0 in node.spec.shape:
        return node
    if len(a.spec.shape) == 2 and len(b.spec.shape) > 2 and b.spec.shape[-1] == 1:
        return _of_columns(node)
    if len(b.spec.shape) != 2 or len(a.spec.shape) < 3:
        return node
    if a.op == "permute_dims":
        (x,), axes = a.inputs, a.attrs["axes"]
        if axes[-1] != len(axes) - 1:
            return node
        spec = Spec((*x.spec.shape[:-1], b.spec.shape[1]), node.spec.dtype)
        return _permuted(_flat(replace(node, inputs=(x, b), spec=spec)), axes)
    *batch, m, k = a.spec.shape
    rows = prod(batch) * m
    flat = replace(
        node, inputs=(reshaped(a, (rows, k)), b), spec=Spec((rows, b.spec.shape[1]), node.spec.dtype)
    )
    return reshaped(flat, node.spec.shape)


def _of_columns(node: Node) -> Node:
    """Return products of one matrix and many columns as one: of the columns, as rows, and its transpose."""
    a, b = node.inputs
    *batch, k, _ = b.spec.shape
    rows, m = prod(batch), a.spec.shape[0]
    spec = Spec((rows, m), node.spec.dtype)
    flat = replace(node, inputs=(reshaped(b, (rows, k)), _permuted(a, (1, 0))), spec=spec)
    return reshaped(flat, node.spec.shape)


def _permuted(x: Node, axes: tuple[int, ...]) -> Node:
    spec = Spec(tuple(x.spec.shape[k] for k in axes), x.spec.dtype)
    return Node(
        op="permute_dims", inputs=(x,), attrs={"axes": axes}, spec=spec, recompute_tag=x.recompute_tag
    )


def reshaped(x: Node, shape: tuple[int, ...]) -> Node:
    """Return the elements of ``x`` in another shape."""
    spec = Spec(shape, x.spec.dtype)
    return Node(op="reshape", inputs=(x,), attrs={"shape": shape}, spec=spec, recompute_tag=x.recompute_tag)
