"""A captured graph, made ready for a code generator."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import lru_cache
from typing import Final

from ..backend_interface.graph import Graph, Node
from ..decompose.decompose import decompose
from ..decompose.tracer import trace
from ..dtypes.definition import DType
from ..graph.passes.simplify import simplify
from ..lowering.codegen.dialect import Dialect
from ..lowering.op_sets import INLINED, INSIDE, OPTIONAL, SCHEDULED, Library
from ..ops.definition import USER, Spec, table
from ..ops.fused_update import is_fused_update

MANY: Final = 1024
"""How many decompositions of bundles are kept."""


def is_generated(op: str, dialect: Dialect) -> bool:
    """Return whether the code generator has a schedule for an op, and the language what that takes."""
    return op in SCHEDULED or (op in INLINED and (op not in OPTIONAL or OPTIONAL[op] in dialect.expressions))


def prepared(graph: Graph, keeps: Callable[[str], bool], dtypes: Collection[DType] | None = None) -> Graph:
    """Return ``graph`` in prims, bundles, kernels of the user's and what ``keeps`` names, simplified.

    ``dtypes`` are those of the language. Ops on others are calls: they stay whole, and their numbers are
    values, which no generated code has to write. None: the language has all.
    """
    if dtypes is None or all(node.spec.dtype in dtypes for node in graph):
        return _with_insides(simplify(decompose(graph, lambda op: _stays(op) or keeps(op))))
    library = Library(frozenset(), dtypes)
    own = {node.op for node in graph if not library.lacks(node)}
    lacking = {node.op for node in graph if library.lacks(node)}
    called = {op for op in lacking - own if op in table and not is_fused_update(op)}
    apart = {op for op in lacking if is_fused_update(op)}
    made = simplify(
        decompose(graph, lambda op: op not in apart and (op in called or _stays(op) or keeps(op)))
    )
    return _filled(_with_insides(made), dtypes)


def _stays(op: str) -> bool:
    return table[op].family == USER or is_fused_update(op)


def _with_insides(graph: Graph) -> Graph:
    """Return ``graph`` whose bundles bring their decompositions along."""
    bundles = {op for op in {node.op for node in graph} if is_fused_update(op)}
    for node in graph if bundles else ():
        if node.op in bundles:  # the nodes are ours: ``simplify`` made them
            node.attrs = {INSIDE: _inside(node.op, tuple([x.spec for x in node.inputs]))}
    return graph


@lru_cache(MANY)
def _inside(op: str, specs: tuple[Spec, ...]) -> Graph:
    """Return the decomposition of a bundle: equal ones have the same, so that kernels are found again."""
    return simplify(trace(op, specs, {}))


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
