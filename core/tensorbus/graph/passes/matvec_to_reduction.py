"""Products of one row, of one column, or of one term, as sums and products of elements.

They read a matrix once, which is all that they take. Where the terms of a sum lie side by side, a reduction
does that at the speed of the memory and goes on with what follows; schedules and libraries for products are
made for many rows.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ...backend_interface.graph import Graph, Node
from ...dtypes.definition import DType, bfloat16, float16, float32, float64
from ...ops.definition import Spec
from .scatter_patterns import reshaped

_SUMMED_IN: dict[DType, DType] = {float16: float32, bfloat16: float32, float32: float32, float64: float64}


def with_single_rows(graph: Graph) -> Graph:
    """Return ``graph`` with such products written out; the same one where there are none."""
    if not any(node.op == "matmul" and 1 in (*node.spec.shape[-2:], _terms(node)) for node in graph):
        return graph
    done: dict[Node, Node] = {}
    for node in graph:
        made = node
        if any(done[x] is not x for x in node.inputs):
            made = node.of(tuple([done[x] for x in node.inputs]))
        if node.op == "matmul":
            made = _written_out(made) or made
        done[node] = made
    return Graph(inputs=graph.inputs, outputs=tuple(done[x] for x in graph.outputs))


def _terms(node: Node) -> int:
    return node.inputs[0].spec.shape[-1]


def _written_out(node: Node) -> Node | None:
    x, y = node.inputs
    dtype = node.spec.dtype
    wide = _SUMMED_IN.get(dtype)
    if wide is None or x.spec.dtype is not dtype or y.spec.dtype is not dtype or 0 in node.spec.shape:
        return None

    def new(op: str, *inputs: Node, shape: tuple[int, ...], **attrs: Any) -> Node:
        return Node(
            op=op, inputs=inputs, attrs=attrs, spec=Spec(shape, wide), recompute_tag=node.recompute_tag
        )

    def cast(value: Node) -> Node:
        return value if wide is dtype else new("cast", value, shape=value.spec.shape, dtype=wide)

    *_, terms, columns = y.spec.shape
    if len(y.spec.shape) == 2 and prod(x.spec.shape[:-1]) == 1:
        x = reshaped(x, (1, terms))
    elif x.spec.shape[:-2] != y.spec.shape[:-2]:
        return None
    *batch, rows, _ = x.spec.shape
    shape = (*batch, rows, columns)
    if terms == 1:
        made = new("multiply", cast(x), cast(y), shape=shape)
    elif 1 in (rows, columns):
        if not (_is_turned(y) if rows == 1 else not _is_turned(x)):
            return None
        both = new("multiply", cast(x), cast(_turned(y)), shape=(*batch, max(rows, columns), terms))
        made = new("sum", both, shape=both.spec.shape[:-1], axis=(len(batch) + 1,), keepdims=False)
    else:
        return None
    if wide is not dtype:
        made = Node(
            op="cast", inputs=(made,), attrs={"dtype": dtype}, spec=Spec(made.spec.shape, dtype),
            recompute_tag=node.recompute_tag,
        )  # fmt: skip
    return reshaped(made, node.spec.shape) if made.spec.shape != node.spec.shape else made


def _axes(x: Node) -> tuple[int, ...]:
    rank = len(x.spec.shape)
    return (*range(rank - 2), rank - 1, rank - 2)


def _is_turned(x: Node) -> bool:
    return x.op == "permute_dims" and tuple(x.attrs["axes"]) == _axes(x)


def _turned(x: Node) -> Node:
    """Return the matrices with rows and columns exchanged."""
    axes = _axes(x)
    if _is_turned(x):
        return x.inputs[0]
    spec = Spec(tuple([x.spec.shape[k] for k in axes]), x.spec.dtype)
    return Node(
        op="permute_dims", inputs=(x,), attrs={"axes": axes}, spec=spec, recompute_tag=x.recompute_tag
    )
