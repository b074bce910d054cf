"""The driver of all graph rewrites: it visits nodes in topological order, once each, and rebuilds the graph.

A pass gives it a rule for one node. Nodes are never visited by recursion: chains are thousands long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import is_

from ..backend_interface.graph import Graph, Node

Rule = Callable[[Node], Node]
"""Returns the replacement of a node whose operands are replaced already, or the node itself."""


def topological(roots: Iterable[Node], stop: Callable[[Node], bool] | None = None) -> list[Node]:
    """Return the nodes that ``roots`` are computed from, operands first; nothing behind a ``stop`` node."""
    seen: set[Node] = set()
    order: list[Node] = []
    stack = [(root, False) for root in reversed([*roots])]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if stop is None or not stop(node):
                stack.extend([(x, False) for x in reversed(node.inputs)])
    return order


def rebuild(
    nodes: Iterable[Node], rule: Callable[[Node, tuple[Node, ...]], Node | None],
    done: dict[Node, Node] | None = None,
) -> dict[Node, Node]:  # fmt: skip
    """Return the replacement of each of ``nodes``, which come in topological order.

    ``rule(node, inputs)`` returns it, given the replacements of the operands; None: the same op of these.
    ``done`` has replacements that are known before, which need no rule.
    """
    done = {} if done is None else done
    for node in nodes:
        if node not in done:
            inputs = tuple([done.get(x, x) for x in node.inputs])
            replacement = rule(node, inputs)
            done[node] = with_inputs(node, inputs) if replacement is None else replacement
    return done


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """Return the node of other operands: itself, where they are the same."""
    return node if all(map(is_, inputs, node.inputs)) else node.of(inputs)


def rewrite(graph: Graph, rule: Callable[[Node, Node], Node | None]) -> Graph:
    """Return the graph with the replacements that a rule has for its nodes; itself, where there are none.

    ``rule(node, original)`` sees a node of replaced operands, and beside it the one of ``graph``, which
    counts of uses are of; None: the node stays.
    """
    done = rebuild(graph, lambda old, inputs: rule(new := with_inputs(old, inputs), old) or new)
    if all(replacement is old for old, replacement in done.items()):
        return graph
    return Graph(inputs=graph.inputs, outputs=tuple([done[x] for x in graph.outputs]))


def rewrite_owned(graph: Graph, rule: Rule, ops: Collection[str] = ()) -> Graph:
    """Return the graph with a rule applied to the nodes of ``ops``, or to all where there are none given.

    It is for several rules in a row: nodes belong to the caller, and change instead of being copied, and the
    new graph knows their order.
    """
    nodes, skipped = list(graph), {"input"}
    if ops:
        skipped = {node.op for node in nodes}.difference(ops)
    first, replacement = next(
        ((k, m) for k, n in enumerate(nodes) if n.op not in skipped and (m := rule(n)) is not n), (-1, None)
    )
    if replacement is None:
        return graph
    moved: dict[Node, Node] = {nodes[first]: replacement}
    order: dict[Node, None] = dict.fromkeys(nodes[:first])
    _append(replacement, order)
    for node in nodes[first + 1 :]:
        if not moved.keys().isdisjoint(node.inputs):
            node.inputs = tuple([moved.get(x, x) for x in node.inputs])
        replacement = node if node.op in skipped else rule(node)
        if replacement is node:
            order[node] = None
            continue
        moved[node] = replacement
        _append(replacement, order)
    outputs = tuple([moved.get(x, x) for x in graph.outputs])
    used = {*graph.inputs, *outputs}
    for node in reversed(order):
        if node in used:
            used.update(node.inputs)
    return Graph(inputs=graph.inputs, outputs=outputs).known([node for node in order if node in used])


def owned(graph: Graph) -> Graph:
    """Return the graph with nodes of its own, but for the inputs, as ``rewrite_owned`` needs them."""
    done = rebuild(graph, lambda node, inputs: node if node.op == "input" else node.of(inputs))
    copied = Graph(inputs=graph.inputs, outputs=tuple([done[x] for x in graph.outputs]))
    return copied.known([*done.values()])


def _append(node: Node, order: dict[Node, None]) -> None:
    """Append a node, behind those of its operands that are not there yet."""
    stack = [node]
    while stack:
        left = [x for x in stack[-1].inputs if x not in order]
        if left:
            stack += left
        else:
            order[stack.pop()] = None
