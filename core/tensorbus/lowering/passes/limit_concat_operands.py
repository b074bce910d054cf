"""Concatenations of more operands than a kernel may have buffers, as concatenations of concatenations."""

from __future__ import annotations

from dataclasses import replace

from ...backend_interface.graph import Graph, Node
from ...graph.rewrite import rewrite
from ...ops.definition import Spec


def limit_concat_operands(graph: Graph, limit: int) -> Graph:
    """Return the graph with concatenations of at most ``limit`` operands."""
    if all(node.op != "concat" or len(node.inputs) <= limit for node in graph):
        return graph

    def rule(node: Node, _: Node) -> Node | None:
        operands = node.inputs
        while node.op == "concat" and len(operands) > limit:
            operands = tuple([_concat(node, operands[k : k + limit]) for k in range(0, len(operands), limit)])
        return node.of(operands) if operands is not node.inputs else None

    return rewrite(graph, rule)


def _concat(node: Node, operands: tuple[Node, ...]) -> Node:
    """Return the concatenation of some operands of ``node``."""
    if len(operands) == 1:
        return operands[0]
    axis, shape = node.attrs["axis"], list(node.spec.shape)
    shape[axis] = sum(x.spec.shape[axis] for x in operands)
    return replace(node, inputs=operands, spec=Spec(tuple(shape), node.spec.dtype))
