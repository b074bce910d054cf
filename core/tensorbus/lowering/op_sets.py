"""The ops that schedules are written for, by family, and those that a device runs by calls of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ..backend_interface.graph import Node
from ..dtypes.definition import NARROW, DType, float32
from ..ops.definition import table

if TYPE_CHECKING:
    from .ir.layout import Layout

ELEMENTWISE: Final = frozenset(
    """abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor cast ceil complex conj cos cosh divide equal erf exp expm1 floor
    floor_divide gcd greater greater_equal imag isfinite isinf isnan less less_equal log log10 log1p log2
    logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal
    power real reciprocal remainder round rsqrt sign signbit sin sinh sqrt square subtract tan tanh trunc
    where""".split()
)
"""The ops of one expression an element, which dialects write: see ``codegen.c_expressions``."""
_INDEXED: Final = frozenset(
    """broadcast_to concat flip full gather iota pad permute_dims pick random_bits reshape slice slice_update
    windows""".split()
)
"""The ops that read their operands at other places, by a rule: see ``ir.inline``."""
INLINED: Final = ELEMENTWISE | _INDEXED | {"constant"}
"""The ops that are computed inside the kernels that read them, and need none of their own."""
PHILOX: Final = "philox"
"""The expression of a key, a block of the stream and one of its four words: see ``c_expressions.RANDOM``."""
OPTIONAL: Final = {"random_bits": PHILOX}
"""Those of them that only languages can write that have an expression for them; others decompose them."""
REDUCTIONS: Final = frozenset({"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"})
FINDS: Final = frozenset({"argmax", "argmin"})
"""The reductions whose results are places."""
SCANS: Final = {
    "cumulative_sum": "sum", "cumulative_prod": "prod", "cumulative_max": "max", "cumulative_min": "min",
    "logcumsumexp": "logsumexp",
}  # fmt: skip
"""Each scan, and the reduction whose states it keeps."""
SORTS: Final = frozenset({"sort", "argsort"})
SCHEDULED: Final = REDUCTIONS | frozenset(SCANS) | SORTS | {"matmul", "scatter"}
"""The ops that schedules of their own are written for."""
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
    return (node.op in library and not library.generates(node)) or library.lacks(node)


def accumulator(dtype: DType) -> DType:
    """Return the dtype that values of ``dtype`` add up in."""
    return float32 if dtype in NARROW else dtype
