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
        given = node.inputs
        while node.op == "concat" and len(given) > limit:
            given = tuple([_concat(node, given[k : k + limit]) for k in range(0, len(given), limit)])
        return node.of(given) if given is not node.inputs else None

    return rewrite(graph, rule)


def _concat(node: Node, given: tuple[Node, ...]) -> Node:
    """Return the concatenation of some operands of ``node``."""
    if len(given) == 1:
        return given[0]
    axis, shape = node.attrs["axis"], list(node.spec.shape)
    shape[axis] = sum(x.spec.shape[axis] for x in given)
    return replace(node, inputs=given, spec=Spec(tuple(shape), node.spec.dtype))
