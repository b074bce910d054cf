"""The text of a program: the key by which another process finds its compiled kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..backend_interface.graph import Graph, SubGraph
from ..dtypes.definition import DType
from ..ops.definition import table
from ..ops.nn.score_program import ScoreProgram

_PLAIN: Final = (bool, int, float, complex, str, type(None), DType)
_OWN: Final = frozenset({"input", "constant", "result"})


def name_of(graph: Graph) -> str | None:
    """Return a text that is the same for graphs that compute the same; None where no text says all.

    So it is of ops that a plugin or the program defines, and of attributes that are objects, but for score
    programs, which are graphs.
    """
    again = []
    for node in graph:
        own = node.op in _OWN or table.owner(node.op) == "tensorbus"
        if not own or not all(map(_is_text, node.attrs.values())):
            return None
        again.append(node.recompute_tag)
    return f"{graph}\n{again if any(again) else ''}"


def _is_text(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_text, value))
    if isinstance(value, Mapping):
        return all(map(_is_text, (*value, *value.values())))
    if isinstance(value, ScoreProgram):  # its text stands in that of the graph as a digest
        graphs = (value.graph,) if value.derivative is None else (value.graph, value.derivative)
        return all(name_of(graph) is not None for graph in graphs)
    if isinstance(value, SubGraph):
        return name_of(value.graph) is not None
    return isinstance(value, _PLAIN)
