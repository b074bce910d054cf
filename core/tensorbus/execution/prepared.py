"""A captured graph, made ready for a code generator."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ..decomposition import decompose
from ..dtypes import DType
from ..graph.graph import Graph, Node
from ..graph.simplify import simplify
from ..lowering.families import Library
from ..lowering.plan import ROOTS
from ..lowering.pull import PULLED
from ..ops.op import USER, table


def is_generated(op: str) -> bool:
    """Return whether the code generator has a schedule for an op."""
    return op in PULLED or op in ROOTS


def prepared(graph: Graph, keeps: Callable[[str], bool], dtypes: Collection[DType] | None = None) -> Graph:
    """Return ``graph`` in prims, kernels of the user's and what ``keeps`` names, simplified.

    ``dtypes`` are those of the language. Ops on others are calls: they stay whole, and their numbers are
    values, which no generated code has to write. None: the language has all.
    """
    if dtypes is None or all(node.spec.dtype in dtypes for node in graph):
        return simplify(decompose(graph, lambda op: table[op].family == USER or keeps(op)))
    library = Library(frozenset(), dtypes)
    own = {node.op for node in graph if not library.lacks(node)}
    called = {node.op for node in graph if node.op in table} - own
    made = simplify(decompose(graph, lambda op: op in called or table[op].family == USER or keeps(op)))
    return _filled(made, dtypes)


def _filled(graph: Graph, dtypes: Collection[DType]) -> Graph:
    """Return ``graph`` with constants that the language cannot write as values of the device."""
    done: dict[int, Node] = {}
    for node in graph:
        made = node
        if node.op == "constant" and node.spec.dtype not in dtypes:
            attrs = {"shape": (), "value": node.attrs["value"], "dtype": node.spec.dtype}
            made = Node(op="full", attrs=attrs, spec=node.spec)
        elif any(done[id(x)] is not x for x in node.inputs):
            made = replace(node, inputs=tuple(done[id(x)] for x in node.inputs))
        done[id(node)] = made
    return Graph(inputs=graph.inputs, outputs=tuple(done[id(x)] for x in graph.outputs))
