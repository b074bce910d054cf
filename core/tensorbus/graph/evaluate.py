"""The evaluation of a graph: a value is what its caller makes, a tensor, a variable of code, or a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, TypeVar

from ..backend_interface.graph import Graph, Node
from ..ops.creation.creation import full
from ..ops.definition import AFTER, table
from ..tensor.tensor import Tensor

V = TypeVar("V")
_NONE: Final[Mapping[int, Sequence[int]]] = MappingProxyType({})


def evaluate(graph: Graph, inputs: Sequence[V], step: Callable[[Node, Mapping[Node, V]], V]) -> dict[Node, V]:
    """Return the value of each node: ``step`` makes it of the node and the values of those before it.

    ``inputs`` are those of the graph's inputs. Constants, and the parts of a node of several results, are
    nodes like others.
    """
    values = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph:
        if node not in values:
            values[node] = step(node, values)
    return values


def run_ops(
    graph: Graph, inputs: Sequence[Any], device: Any, untracked: Mapping[int, Sequence[int]] = _NONE
) -> list[Any]:
    """Run a graph on tensors, op by op; return its outputs, which are tensors.

    What it creates is created on ``device``. ``untracked`` has the numbers of operands that are taken
    detached, by the id of their node.
    """

    def step(node: Node, values: Mapping[Node, Any]) -> Any:
        if node.op == "constant":
            return node.attrs["value"]
        if node.op == "result":
            return values[node.inputs[0]][node.attrs["index"]]
        attrs = dict(node.attrs) if node.inputs else {**node.attrs, "device": device}
        operands = [values[x] for x in node.inputs]
        if attrs.pop(AFTER, False):
            operands.pop()
        for k in untracked.get(id(node), ()):
            if isinstance(operands[k], Tensor):
                operands[k] = operands[k].detach()
        return table.run(node.op, operands, attrs)

    values = evaluate(graph, inputs, step)
    return [
        full((), node.attrs["value"], dtype=node.spec.dtype, device=device) if node.op == "constant"
        else values[node]
        for node in graph.outputs
    ]  # fmt: skip
