"""Ordered ops that are composites, as the ops that they call: then a device sees what it communicates.

The order of all calls stays: each ordered one names the one before (see ``Op.ordered``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ..backend_interface.graph import Graph, Node
from ..backend_interface.protocols import Call
from ..decompose.tracer import GraphTracer
from ..graph.rewrite import topological, with_inputs
from ..ops.definition import AFTER, Op, table


class _CountingTracer(GraphTracer):
    """Traces every op as it is called, and counts the ordered ones, used or not."""

    def __init__(self, name: str) -> None:
        super().__init__(name, lambda op: True)
        self._of_thread = threading.local()

    def prepare(self, op: Op[...], call: Call) -> Callable[..., Any] | None:
        """Return what makes a node of an op, as ``GraphTracer.prepare``."""
        run = super().prepare(op, call)
        if run is None or not op.ordered:
            return run

        def counted(*values: Any) -> Any:
            self._of_thread.count += 1
            return run(*values)

        return counted

    def pieces(
        self, op: Op[...], operands: Sequence[Node], attrs: Mapping[str, Any]
    ) -> tuple[Node, list[Node], int]:
        """Return the result of a composite, the nodes that make it, and how many ordered calls it makes."""
        self._of_thread.count = 0
        (result,) = self.run_decomposition(op, [*map(self.wrap, operands)], attrs)
        return result, _within(result, operands), self._of_thread.count


_TRACER: Final = _CountingTracer("ordered")


def expand_ordered(graph: Graph) -> Graph:
    """Return ``graph`` with the ordered composites replaced by what they call, in their order.

    One that communicates nothing on this rank drops out of the order, unless calls before it would be lost.
    One that communicates and does not use what it gets on this rank, which other ranks do, stays as it is.
    """
    if not any(_is_composite(node) for node in graph):
        return graph
    expanded, calls = _expanded(graph, keep=False)
    return expanded if calls <= {*expanded} else _expanded(graph, keep=True)[0]


def _expanded(graph: Graph, keep: bool) -> tuple[Graph, set[Node]]:
    """Return the graph, and its ordered calls; ``keep``: composites without one stay as they are."""
    values: dict[Node, Node] = {}
    last: dict[Node, Node | None] = {}
    calls: set[Node] = set()
    for node in graph:
        if not _is_ordered(node):
            values[node] = with_inputs(node, tuple([values[x] for x in node.inputs]))
            continue
        attrs = {name: value for name, value in node.attrs.items() if name != AFTER}
        inputs, follows = node.inputs, None
        if AFTER in node.attrs:
            inputs, follows = inputs[:-1], last[_call_of(inputs[-1])]
        operands = [values[x] for x in inputs]
        result = Node(op=node.op, inputs=tuple(operands), attrs=attrs, spec=node.spec)
        within = [result]
        if _is_composite(node):
            composed, pieces, count = _TRACER.pieces(table[node.op], operands, attrs)
            used = sum(map(_is_ordered, pieces))
            if used == count and (used or not keep):
                result, within = composed, pieces
        values[node], last[node] = _in_order(result, within, follows, node.recompute_tag)
        if (call := last[node]) is not None:
            calls.add(call)
    outputs = tuple([values[x] for x in graph.outputs])
    return Graph(inputs=graph.inputs, outputs=outputs), calls


def _in_order(result: Node, within: Iterable[Node], last: Node | None, tag: int) -> tuple[Node, Node | None]:
    """Return ``result`` of nodes whose ordered calls follow ``last`` and each other, and the last of all."""
    new: dict[Node, Node] = {}
    for node in within:
        inputs, attrs = tuple([new.get(x, x) for x in node.inputs]), dict(node.attrs)
        ordered = _is_ordered(node)
        if ordered and last is not None:
            inputs, attrs[AFTER] = (*inputs, _value_of(last)), True
        new[node] = Node(op=node.op, inputs=inputs, attrs=attrs, spec=node.spec, recompute_tag=tag)
        last = new[node] if ordered else last
    return new.get(result, result), last


def _call_of(node: Node) -> Node:
    """Return the call whose value, or first result, a node is."""
    return node.inputs[0] if node.op == "result" else node


def _value_of(call: Node) -> Node:
    """Return a call's value: the first of several."""
    if not table[call.op].results:
        return call
    return Node(op="result", inputs=(call,), attrs={"index": 0}, spec=call.spec)


def _within(result: Node, operands: Iterable[Node]) -> list[Node]:
    """Return the nodes that make ``result`` of operands, in order."""
    known = {*operands}
    return [node for node in topological([result], stop=known.__contains__) if node not in known]


def _is_ordered(node: Node) -> bool:
    return node.op in table and table[node.op].ordered


def _is_composite(node: Node) -> bool:
    return _is_ordered(node) and table[node.op].decompose is not None
