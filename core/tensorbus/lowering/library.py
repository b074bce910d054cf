"""The ops that a device runs by calls of its own, among the nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ..backend_interface.graph import Node
from ..dtypes.definition import DType
from ..system.former_names import former_names
from .ir.layout import Layout
from .op_sets import INLINED, INSIDE, SCHEDULED


@former_names(
    over="in_place",
    apart="row_stride",
    orders="axis_orders",
    leaves="side_output",
    generates="prefers_generated",
)
@dataclass(frozen=True, slots=True)
class Library:
    """The ``ops`` that are calls wherever they stand; others are where the language lacks one of ``dtypes``.

    ``in_place`` says of a call's node whether it can write its result over its first operand. ``row_stride``
    says how far apart the rows of a value are best, which a call makes of operands that lie so, or (of no
    operands) which a call reads; 0: packed. ``axis_orders`` is for calls whose results may lie anywhere with
    their last axis packed: it says of one whose operands lie so in which order the axes of each result are
    best in memory, the outermost first (nothing: as they are); None for all others. ``side_output`` says how
    many float32 the first of two calls can leave for the second, which reads its result.
    ``prefers_generated`` says of a node whose op is a call that what the core generates for it is better.
    """

    ops: frozenset[str]
    dtypes: Collection[DType]
    in_place: Callable[[Node], bool] = field(default=lambda node: False)
    row_stride: Callable[[Node, Sequence[Layout | None]], int] = field(default=lambda node, layouts: 0)
    axis_orders: Callable[[Node, Sequence[Layout | None]], Sequence[tuple[int, ...]] | None] = field(
        default=lambda node, layouts: None
    )
    side_output: Callable[[Node, Node], int] = field(default=lambda node, reader: 0)
    prefers_generated: Callable[[Node], bool] = field(default=lambda node: False)

    def __contains__(self, op: object) -> bool:
        return op in self.ops

    def lacks(self, node: Node) -> bool:
        """Return whether the language has no way to write what a node computes, or what it reads."""
        known = self.dtypes
        return node.spec.dtype not in known or any(x.spec.dtype not in known for x in node.inputs)


Calls = Library | Collection[str] | None
"""What a device runs by calls of its own; None where there are no calls."""


def is_call(node: Node, library: Calls) -> bool:
    """Return whether a node is run by a call of the device's: its own choice, or nobody can generate it."""
    if library is None or node.op in ("input", "constant", "result"):
        return False
    if INSIDE in node.attrs:
        return type(library) is Library and library.lacks(node)
    if not (node.op in INLINED or node.op in SCHEDULED):
        return True
    if type(library) is not Library:
        return node.op in library
    return (node.op in library and not library.prefers_generated(node)) or library.lacks(node)
