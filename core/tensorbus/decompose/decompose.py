"""Breaking the ops of a captured program down to those that a device wants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..backend_interface.graph import Graph, Node
from ..graph.passes.simplify import frozen
from ..graph.verify import verify
from ..ops.definition import Spec, table
from ..system.env import verifying
from .tracer import trace


def decompose(graph: Graph, keeps: Callable[[str], bool]) -> Graph:
    """Return ``graph`` with every composite replaced by its decomposition, except where ``keeps(op)`` holds.

    Prims stay as they are, and composites that a decomposition makes are broken down in turn. Verified under
    ``TENSORBUS_VERIFY=1``.
    """
    known: dict[Any, Graph] = {}
    done: dict[int, Node] = {}
    parts: dict[int, tuple[Node, ...]] = {}

    def copied(node: Node, inputs: tuple[Node, ...], again: int) -> Node:
        if again == node.recompute_tag and all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
            return node
        return Node(op=node.op, inputs=inputs, attrs=node.attrs, spec=node.spec, recompute_tag=again)

    def expanded(node: Node, inputs: tuple[Node, ...], again: int) -> tuple[Node, ...] | None:
        """Return the results of a composite in other ops; None for what stays."""
        if node.op not in table or table[node.op].is_prim or keeps(node.op):
            return None
        body = _body(node.op, tuple(x.spec for x in inputs), node.attrs, known)
        made: dict[int, Node] = {id(own): x for own, x in zip(body.inputs, inputs, strict=True)}
        several: dict[int, tuple[Node, ...]] = {}
        for each in body:
            if id(each) not in made:
                made[id(each)] = step(each, tuple(made[id(x)] for x in each.inputs), several, again)
        return tuple(made[id(x)] for x in body.outputs)

    def step(node: Node, inputs: tuple[Node, ...], several: dict[int, tuple[Node, ...]], again: int) -> Node:
        if node.op == "result" and id(inputs[0]) in several:
            part: int = node.attrs["index"]
            return several[id(inputs[0])][part]
        results = expanded(node, inputs, again)
        if results is None:
            return copied(node, inputs, again)
        if table[node.op].results:
            several[id(results[0])] = results
        return results[0]

    for node in graph:
        done[id(node)] = step(node, tuple(done[id(x)] for x in node.inputs), parts, node.recompute_tag)
    made = Graph(
        inputs=tuple(done[id(x)] for x in graph.inputs), outputs=tuple(done[id(x)] for x in graph.outputs)
    )
    return verify(made) if verifying() else made


def _body(op: str, specs: tuple[Spec, ...], attrs: Mapping[str, Any], known: dict[Any, Graph]) -> Graph:
    try:
        key = op, specs, frozen(attrs)
        found = known.get(key)
    except TypeError:
        return trace(op, specs, attrs)
    if found is None:
        found = known[key] = trace(op, specs, attrs)
    return found
