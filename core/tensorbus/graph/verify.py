"""The check of a graph: every node has the shape and dtype that its op's own rule gives."""

from __future__ import annotations

from ..backend_interface.graph import Graph, Node
from ..errors import TensorbusError
from ..ops.definition import Spec, table


class GraphError(TensorbusError, ValueError):
    """A graph is malformed: a fault of the pass that made it, not of the user's program."""


def verify(graph: Graph) -> Graph:
    """Return ``graph`` when it is well formed; raise ``GraphError`` naming the node otherwise."""
    own = {id(node) for node in graph.inputs}
    for number, node in enumerate(graph):
        _verify_node(graph, node, number, node.op == "input" and id(node) in own)
    return graph


def _verify_node(graph: Graph, node: Node, number: int, own: bool) -> None:
    def need(holds: bool, what: str) -> None:
        if not holds:
            raise GraphError(f"%{number} = {node.op}: {what}\n{graph}")

    if node.op == "input":
        need(own and not node.inputs, "is an input that the graph does not list")
    elif node.op == "constant":
        need(node.spec.shape == () and "value" in node.attrs, "a constant is one Python scalar")
    elif node.op == "result":
        (whole,) = node.inputs
        names = table[whole.op].results if whole.op in table else ()
        several = len(names) > 1 or any(name.startswith("*") for name in names)
        need(several, "takes no op of several results apart")
        specs = table[whole.op].specs(tuple(operand.spec for operand in whole.inputs), whole.attrs)
        need(0 <= node.attrs["index"] < len(specs), "there are not as many results")
        need(node.spec == specs[node.attrs["index"]], "is not what the op gives there")
    else:
        need(node.op in table, "no op has this name")
        names = table[node.op].operands
        many = any(name.startswith("*") for name in names)
        need(many or len(node.inputs) == len(names), f"takes {len(names)} operand(s), not {len(node.inputs)}")
        specs = tuple(operand.spec for operand in node.inputs)
        try:
            wanted: Spec = table[node.op].specs(specs, node.attrs)[0]
        except (TensorbusError, TypeError, ValueError) as error:
            raise GraphError(f"%{number} = {node.op}: {error}\n{graph}") from error
        need(wanted == node.spec, f"is {node.spec}, where the op gives {wanted}")
