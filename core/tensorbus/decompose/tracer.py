"""Capture: running a decomposition on values that record instead of compute.

A captured value is a graph node; its device is the pseudo device ``graph``, whose kernel for every prim makes
another node. So a decomposition written for tensors becomes a ``Graph`` without knowing it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..autograd.engine import no_grad
from ..backend_interface.graph import Graph, Node
from ..backend_interface.protocols import Call, Kernel
from ..devices.device import Device, ValueType
from ..dispatch.kernel_selection import add_source
from ..dtypes.definition import DType
from ..ops.definition import Op, Spec, table
from ..tensor.tensor import wrap

GRAPH: Final = "graph"


class _Recorder:
    """The kernels of the pseudo device: one that records, for every prim."""

    def candidates(self, op: str) -> Sequence[tuple[str, Kernel]]:
        return [("tensorbus", Kernel(name="record", prepare=recording))] if table[op].is_prim else []

    def dtypes(self, index: int) -> frozenset[DType] | None:
        return None


def recording(call: Call) -> Any:
    """Return what records a call: it makes a node of the nodes and Python scalars that it is called with."""
    op = table[call.op]

    def run(*values: Any) -> Any:
        nodes = tuple(
            v if isinstance(v, Node) else _constant(v, d) for v, d in zip(values, call.dtypes, strict=True)
        )
        return _apply(op, nodes, call.attrs)

    return run


def _apply(op: Op[...], inputs: tuple[Node, ...], attrs: Mapping[str, Any]) -> Any:
    """Return the node of an op; of one with several results, a tuple of the nodes that take them apart."""
    specs = op.specs(tuple(n.spec for n in inputs), attrs)
    node = Node(op=op.name, inputs=inputs, attrs=dict(attrs), spec=specs[0])
    if not op.results:
        return node
    return tuple(Node(op="result", inputs=(node,), attrs={"index": k}, spec=s) for k, s in enumerate(specs))


def _constant(value: Any, dtype: DType) -> Node:
    return Node(op="constant", attrs={"value": value}, spec=Spec((), dtype))


add_source(GRAPH, _Recorder())


def trace(op: str, operands: Sequence[Spec], attrs: Mapping[str, Any]) -> Graph:
    """Return the graph of one op: of its decomposition, down to prims; a prim is a graph of itself.

    ``operands`` have the dtypes that the op computes in, ``attrs`` are as kernels see them.
    """
    found = table[op]
    inputs = tuple(Node(op="input", attrs={"index": k}, spec=s) for k, s in enumerate(operands))
    if found.decompose is None:
        made = _apply(found, inputs, attrs)
        return Graph(inputs=inputs, outputs=made if found.results else (made,))
    where = Device(GRAPH, 0)
    cells = [wrap(node, ValueType.of(node.spec.dtype, where)) for node in inputs]
    with no_grad():
        if found.family == "creation":
            result = found.decompose(device=where, **attrs)
        else:
            result = found.decompose(*cells, **attrs)
    outputs = tuple(x._value for x in result) if found.results else (result._value,)
    return Graph(inputs=inputs, outputs=outputs)
