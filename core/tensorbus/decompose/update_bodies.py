"""The decompositions of fused updates, which nodes carry along until their kernel is made."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ..backend_interface.graph import Graph
from ..graph.passes.simplify import simplify
from ..lowering.op_sets import INSIDE
from ..ops.definition import Spec
from ..ops.fused_update import is_fused_update
from .tracer import trace

MAX_CACHED_BODIES: Final = 1024
"""The largest number of cached decompositions of fused updates."""


def with_bodies(graph: Graph) -> Graph:
    """Return ``graph`` whose fused updates carry their decompositions as an attribute.

    The graph is one that ``simplify`` made: its nodes are nobody else's, and are changed.
    """
    updates = {op for op in {node.op for node in graph} if is_fused_update(op)}
    for node in graph if updates else ():
        if node.op in updates:
            node.attrs = {INSIDE: _body(node.op, tuple([x.spec for x in node.inputs]))}
    return graph


@lru_cache(MAX_CACHED_BODIES)
def _body(op: str, specs: tuple[Spec, ...]) -> Graph:
    """Return the decomposition of a fused update: one graph for equal ones, so that they share kernels."""
    return simplify(trace(op, specs, {}))
