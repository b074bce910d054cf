"""The ops that are inlined, and those that schedules are written for, by family."""

from __future__ import annotations

from typing import Final

from ..dtypes.definition import NARROW, DType, float32
from ..ops.definition import table

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
ATTENTION: Final = frozenset({"flex_attention", "flex_attention_gradients"})
"""Attention by tiles: of several results, and with operands that lie in buffers."""
SCHEDULED: Final = REDUCTIONS | frozenset(SCANS) | SORTS | ATTENTION | {"matmul", "scatter"}
"""The ops that schedules of their own are written for."""
INSIDE: Final = "inside"
"""The attribute by which a fused update has its decomposition with it: a graph. One without is a call."""


def calls_function(op: str) -> bool:
    """Return whether a node of this op costs a mathematical function for each element."""
    return op in table and table[op].cost == "function"


def accumulator(dtype: DType) -> DType:
    """Return the dtype that values of ``dtype`` add up in."""
    return float32 if dtype in NARROW else dtype
