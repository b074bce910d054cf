"""A captured graph, made ready for a code generator."""

from __future__ import annotations

from collections.abc import Callable

from ..decomposition import decompose
from ..graph.graph import Graph
from ..graph.simplify import simplify
from ..lowering.plan import ROOTS
from ..lowering.pull import PULLED
from ..ops.op import USER, table


def is_generated(op: str) -> bool:
    """Return whether the code generator has a schedule for an op."""
    return op in PULLED or op in ROOTS


def prepared(graph: Graph, keeps: Callable[[str], bool]) -> Graph:
    """Return ``graph`` in prims, kernels of the user's and what ``keeps`` names, simplified."""
    return simplify(decompose(graph, lambda op: table[op].family == USER or keeps(op)))
