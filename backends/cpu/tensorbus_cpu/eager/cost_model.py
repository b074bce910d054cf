"""Rough costs of a program's steps, in simple operations: whether threads are worth waking."""

from __future__ import annotations

from typing import Any, Final

from tensorbus.backend_api import DType, LoopKernel

SERIAL: Final = 1 << 16
"""Below that a step runs in the calling thread: handing it out would take longer."""
PART: Final = 1 << 14
"""What a thread takes at a time, at least."""
HEAVY: Final = 1 << 18
"""From that on, a program lets other Python threads run meanwhile."""
_CALLS: Final = frozenset(
    """power exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh atan2
    erf floor_divide remainder""".split()
)
_CALL: Final = 8
_MAX_COUNTED_CALLS: Final = 8
"""So many calls, and more, count alike."""


def weight(kernel: LoopKernel) -> int:
    """Return what an element costs: a simple operation is less than reading and writing it."""
    calls = 0
    stack: list[Any] = list(kernel.body)
    while stack and calls < _MAX_COUNTED_CALLS:
        node = stack.pop()
        if isinstance(node, tuple):
            stack.extend(node)
        elif (names := getattr(node, "__dataclass_fields__", None)) is not None and type(node) is not DType:
            calls += getattr(node, "op", "") in _CALLS
            stack.extend([getattr(node, name) for name in names])
    return 1 + _CALL * calls
