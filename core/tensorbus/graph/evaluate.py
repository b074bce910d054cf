"""The evaluation of a graph: a value is what its caller makes, a tensor, a variable of code, or a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ..backend_interface.graph import Graph, Node

V = TypeVar("V")


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
