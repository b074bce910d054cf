"""Products of a matrix and a vector as sums of products of elements: the matrix is read once, as it lies.

Products of two matrices use each element often, and want it in memory; schedules and libraries for products
are made for them. Which products of a vector become sums depends on what runs them otherwise: see ``Axis``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import DType, bfloat16, float16, float32, float64
from ...graph.rewrite import rewrite
from ...ops.definition import Spec
from ..library import Calls, is_call
from ..op_sets import ELEMENTWISE, accumulator

OUTER: Final = 0
"""Stands for the axis of a product of a column by a row, which has one term."""
Axis = Callable[[Node, Counter[Node]], int | None]
"""Returns which axis the sum goes over that a product becomes: -1, where the terms of each result are
adjacent, or -2, where they are rows apart; ``OUTER`` of one term; None of a product that stays. It is given
the uses of all nodes."""
_MOVED = frozenset({"reshape", "permute_dims", "broadcast_to"})


def matvec_to_reduction(graph: Graph, axis: Axis) -> Graph:
    """Return the graph with the products for which ``axis`` names one written as sums."""
    nodes = list(graph)
    if all(node.op != "matmul" for node in nodes):
        return graph
    uses = Counter([*graph.outputs, *(x for node in nodes for x in node.inputs)])

    def rule(node: Node, original: Node) -> Node | None:
        over = axis(original, uses) if node.op == "matmul" else None
        return None if over is None else _sum(node, over)

    return rewrite(graph, rule)


def where_generated(library: Calls) -> Axis:
    """Return the rule for what is generated: such products, and calls of a matrix computed for them alone.

    A matrix of numbers that are stored in few bits, say, with their scales, is then never stored as floats.
    """

    def axis(node: Node, uses: Counter[Node]) -> int | None:
        x, y = node.inputs
        if not node.spec.dtype.is_floating or 0 in x.spec.shape:
            return None
        generated = not is_call(node, library)
        if y.spec.shape[-1] == 1 and (generated or _is_computed(x, uses)):
            return -1
        return -2 if x.spec.shape[-2] == 1 and (generated or _is_computed(y, uses)) else None

    return axis


def where_adjacent(node: Node, uses: Counter[Node]) -> int | None:
    """Return the axis where workgroups share rows: a reduction of adjacent terms is as fast as memory.

    Of one term any product is elementwise. Operands of other dtypes, or of other batches, stay products.
    """
    x, y = node.inputs
    dtypes = {x.spec.dtype, y.spec.dtype, node.spec.dtype}
    if len(dtypes) > 1 or not dtypes <= _FLOATS or 0 in node.spec.shape:
        return None
    one = len(y.spec.shape) == 2 and all(n == 1 for n in x.spec.shape[:-1])
    if not one and x.spec.shape[:-2] != y.spec.shape[:-2]:
        return None
    rows, (terms, columns) = x.spec.shape[-2], y.spec.shape[-2:]
    if terms == 1:
        return OUTER
    if rows == 1:
        return -1 if _is_transposed(y) else None
    return -1 if columns == 1 and not _is_transposed(x) else None


_FLOATS = frozenset({float16, bfloat16, float32, float64})


def _is_computed(node: Node, uses: Counter[Node]) -> bool:
    """Return whether a value is made, element by element, for one reader."""
    while node.op in _MOVED and uses[node] == 1:
        node = node.inputs[0]
    return node.op in ELEMENTWISE and uses[node] == 1


def _is_transposed(x: Node) -> bool:
    rank = len(x.spec.shape)
    return x.op == "permute_dims" and tuple(x.attrs["axes"]) == (*range(rank - 2), rank - 1, rank - 2)


def _sum(product: Node, axis: int) -> Node:
    """Return a product as the sum over an axis: see ``Axis``."""
    x, y = product.inputs
    *_, terms, columns = y.spec.shape
    batch, rows, rank = product.spec.shape[:-2], x.spec.shape[-2], len(product.spec.shape)
    dtype = accumulator(x.spec.dtype)
    if axis == -1 and columns > 1:
        y = y.inputs[0]  # the matrix of which it is the transpose
    elif axis == -1:
        y = _new("reshape", y.spec.dtype, (*y.spec.shape[:-2], 1, terms), y)
    elif axis == -2:
        x = _new("reshape", x.spec.dtype, (*x.spec.shape[:-2], terms, 1), x)
    x, y = _as(x, dtype), _as(y, dtype)
    inner = {-1: (max(rows, columns), terms), -2: (terms, columns), OUTER: (rows, columns)}[axis]
    result = _new("multiply", dtype, (*batch, *inner), x, y)
    if axis == -1 and columns > 1:
        result = _new("sum", dtype, (*batch, columns), result, axis=(rank - 1,), keepdims=False)
    elif axis != OUTER:
        result = _new("sum", dtype, product.spec.shape, result, axis=(rank + axis,), keepdims=True)
    result = _as(result, product.spec.dtype)
    same = result.spec.shape == product.spec.shape
    return result if same else _new("reshape", result.spec.dtype, product.spec.shape, result)


def _as(x: Node, dtype: DType) -> Node:
    return x if x.spec.dtype is dtype else _new("cast", dtype, x.spec.shape, x)


def _new(op: str, dtype: DType, shape: tuple[int, ...], *inputs: Node, **attrs: Any) -> Node:
    own: dict[str, dict[str, Any]] = {"reshape": {"shape": shape}, "cast": {"dtype": dtype}}
    tag = inputs[0].recompute_tag
    return Node(op=op, inputs=inputs, attrs=own.get(op, attrs), spec=Spec(shape, dtype), recompute_tag=tag)
