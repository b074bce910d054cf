"""Products of a vector and a matrix as sums of rows or of columns: the matrix is read once, as it lies.

So are all of those that are generated. Those that a device runs by calls become sums where the matrix is
computed (floats of numbers that are stored in few bits, say, with their scales), so that it is never stored.
Products of two matrices use each element often, and want it in memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import DType
from ...ops.definition import Spec
from ..op_sets import ELEMENTWISE, Calls, accumulator, is_call

_MOVED = frozenset({"reshape", "permute_dims", "broadcast_to"})


def vector_products(graph: Graph, library: Calls) -> Graph:
    """Return the graph without such products. Calls stay, unless a matrix is computed for them alone."""
    nodes = list(graph)
    if all(node.op != "matmul" for node in nodes):
        return graph
    uses = Counter([*graph.outputs, *(x for node in nodes for x in node.inputs)])
    done: dict[Node, Node] = {}
    for node in nodes:
        given = tuple([done[x] for x in node.inputs])
        made = node if given == node.inputs else replace(node, inputs=given)
        if node.op == "matmul" and node.spec.dtype.is_floating and 0 not in node.inputs[0].spec.shape:
            x, y = node.inputs
            generated = not is_call(node, library)
            if y.spec.shape[-1] == 1 and (generated or _is_computed(x, uses)):
                made = _sum(made, -1)
            elif x.spec.shape[-2] == 1 and (generated or _is_computed(y, uses)):
                made = _sum(made, -2)
        done[node] = made
    return Graph(inputs=graph.inputs, outputs=tuple([done[x] for x in graph.outputs]))


def _is_computed(node: Node, uses: Counter[Node]) -> bool:
    """Return whether a value is made, element by element, for one reader."""
    while node.op in _MOVED and uses[node] == 1:
        node = node.inputs[0]
    return node.op in ELEMENTWISE and uses[node] == 1


def _sum(product: Node, axis: int) -> Node:
    """Return a product as the sum along an axis: -1 where the right operand is a vector, -2 the left one."""
    x, y = (_as(operand, accumulator(operand.spec.dtype)) for operand in product.inputs)
    length, rank = x.spec.shape[-1], len(product.spec.shape)
    if axis == -1:
        y = _new("reshape", y.spec.dtype, (*y.spec.shape[:-2], 1, length), y)
    else:
        x = _new("reshape", x.spec.dtype, (*x.spec.shape[:-2], length, 1), x)
    inner = (x.spec.shape[-2], length) if axis == -1 else (length, y.spec.shape[-1])
    both = _new("multiply", x.spec.dtype, (*product.spec.shape[:-2], *inner), x, y)
    sum_ = _new("sum", both.spec.dtype, product.spec.shape, both, axis=(rank + axis,), keepdims=True)
    return _as(sum_, product.spec.dtype)


def _as(x: Node, dtype: DType) -> Node:
    return x if x.spec.dtype is dtype else _new("cast", dtype, x.spec.shape, x)


def _new(op: str, dtype: DType, shape: tuple[int, ...], *inputs: Node, **attrs: Any) -> Node:
    own: dict[str, dict[str, Any]] = {"reshape": {"shape": shape}, "cast": {"dtype": dtype}}
    return Node(
        op=op,
        inputs=inputs,
        attrs=own.get(op, attrs),
        spec=Spec(shape, dtype),
        recompute_tag=inputs[0].recompute_tag,
    )
