"""Breaking the ops of a captured program down to those that a device wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..backend_interface.graph import Graph, Node
from ..graph.evaluate import evaluate
from ..graph.passes.simplify import frozen
from ..graph.verify import verify
from ..ops.definition import Spec, table
from ..system.env import verifying
from .tracer import trace


def decompose(
    graph: Graph, keeps: Callable[[str], bool], apart: Callable[[Node], bool] = lambda node: False
) -> Graph:
    """Return ``graph`` with every composite replaced by its decomposition, except where ``keeps(op)`` holds.

    Nodes that are to be taken ``apart`` are, whatever ``keeps`` says. Prims stay as they are, and composites
    that a decomposition makes are broken down in turn. Verified under ``TENSORBUS_VERIFY=1``.
    """
    known: dict[Any, Graph] = {}

    def copied(node: Node, inputs: tuple[Node, ...], tag: int) -> Node:
        if tag == node.recompute_tag and all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            return node
        return Node(op=node.op, inputs=inputs, attrs=node.attrs, spec=node.spec, recompute_tag=tag)

    def expanded(node: Node, inputs: tuple[Node, ...], tag: int) -> tuple[Node, ...] | None:
        """Return the results of a composite in other ops; None for what stays."""
        if node.op not in table or table[node.op].is_prim or (keeps(node.op) and not apart(node)):
            return None
        body = _body(node.op, tuple(x.spec for x in inputs), node.attrs, known)
        values = evaluate(body, inputs, stepper(tag))
        return tuple([values[x] for x in body.outputs])

    def stepper(tag: int | None) -> Callable[[Node, Mapping[Node, Node]], Node]:
        """Return the step of a walk; ``tag`` is that of the composite whose decomposition is walked."""
        results: dict[Node, tuple[Node, ...]] = {}

        def step(node: Node, values: Mapping[Node, Node]) -> Node:
            inputs = tuple([values[x] for x in node.inputs])
            if node.op == "result" and inputs[0] in results:
                part: int = node.attrs["index"]
                return results[inputs[0]][part]
            own = node.recompute_tag if tag is None else tag
            replacements = expanded(node, inputs, own)
            if replacements is None:
                return copied(node, inputs, own)
            if table[node.op].results:
                results[replacements[0]] = replacements
            return replacements[0]

        return step

    values = evaluate(graph, graph.inputs, stepper(None))
    rewritten = Graph(inputs=graph.inputs, outputs=tuple([values[x] for x in graph.outputs]))
    return verify(rewritten) if verifying() else rewritten


def _body(op: str, specs: tuple[Spec, ...], attrs: Mapping[str, Any], known: dict[Any, Graph]) -> Graph:
    try:
        key = op, specs, frozen(attrs)
        graph = known.get(key)
    except TypeError:
        return trace(op, specs, attrs)
    if graph is None:
        graph = known[key] = trace(op, specs, attrs)
    return graph
