"""The ops that schedules are written for, by family, and those that a device runs by calls of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from ..dtypes import DType
from ..graph.graph import Node

REDUCTIONS: Final = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"})
SCANS: Final = {
    "cumulative_sum": "sum", "cumulative_prod": "prod", "cumulative_max": "max", "cumulative_min": "min",
    "logcumsumexp": "logsumexp",
}  # fmt: skip
"""Each scan, and the reduction whose states it keeps."""
SORTS: Final = frozenset({"sort", "argsort"})


@dataclass(frozen=True, slots=True)
class Library:
    """The ``ops`` that are calls wherever they stand; others are where the language lacks one of ``dtypes``.

    ``over`` says of a call's node whether it can write its result over its first operand.
    """

    ops: frozenset[str]
    dtypes: Collection[DType]
    over: Callable[[Node], bool] = field(default=lambda node: False)

    def __contains__(self, op: object) -> bool:
        return op in self.ops

    def lacks(self, node: Node) -> bool:
        """Return whether the language has no way to write what a node computes, or what it reads."""
        return any(x.spec.dtype not in self.dtypes for x in (node, *node.inputs))
