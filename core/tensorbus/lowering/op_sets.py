"""The ops that schedules are written for, by family, and those that a device runs by calls of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..dtypes.definition import DType
from ..graph.ir import Node
from ..ops.definition import table

if TYPE_CHECKING:
    from .ir.layout import Layout

REDUCTIONS: Final = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"})
FINDS: Final = frozenset({"argmax", "argmin"})
"""The reductions whose results are places."""
SCANS: Final = {
    "cumulative_sum": "sum", "cumulative_prod": "prod", "cumulative_max": "max", "cumulative_min": "min",
    "logcumsumexp": "logsumexp",
}  # fmt: skip
"""Each scan, and the reduction whose states it keeps."""
SORTS: Final = frozenset({"sort", "argsort"})
INSIDE: Final = "inside"
"""The attribute by which a bundle brings its decomposition along: a graph. One without is a call."""


def calls_function(op: str) -> bool:
    """Return whether a node of this op costs a mathematical function for each element."""
    return op in table and table[op].cost == "function"


@dataclass(frozen=True, slots=True)
class Library:
    """The ``ops`` that are calls wherever they stand; others are where the language lacks one of ``dtypes``.

    ``over`` says of a call's node whether it can write its result over its first operand. ``apart`` says how
    far apart the rows of a value are best, which a call makes of operands that lie so, or (of no operands)
    which a call reads; 0: packed. ``orders`` is for calls whose results may lie anywhere with their last axis
    packed: it says of one whose operands lie so in which order the axes of each result are best in memory,
    the outermost first (nothing: as they are); None for all others. ``leaves`` says how many float32 the
    first of two calls can leave for the second, which reads its result. ``generates`` says of a node whose op
    is a call that what the core generates for it is better.
    """

    ops: frozenset[str]
    dtypes: Collection[DType]
    over: Callable[[Node], bool] = field(default=lambda node: False)
    apart: Callable[[Node, Sequence[Layout | None]], int] = field(default=lambda node, given: 0)
    orders: Callable[[Node, Sequence[Layout | None]], Sequence[tuple[int, ...]] | None] = field(
        default=lambda node, given: None
    )
    leaves: Callable[[Node, Node], int] = field(default=lambda node, reader: 0)
    generates: Callable[[Node], bool] = field(default=lambda node: False)

    def __contains__(self, op: object) -> bool:
        return op in self.ops

    def lacks(self, node: Node) -> bool:
        """Return whether the language has no way to write what a node computes, or what it reads."""
        known = self.dtypes
        return node.spec.dtype not in known or any(x.spec.dtype not in known for x in node.inputs)
