"""Data-dependent errors: ops that fail for some values, such as singular matrices or indices out of range.

In eager mode they raise on their own line, and user code may handle the error there. So during a capture such
an op is computed at once where that matters; a compiled program that fails is dropped for that call, and
Python runs the function as it would without ``compile``. What ranks have exchanged is not computed twice:
there an error comes when the program runs.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final

from ...devices.device import ValueType
from ...ops.creation.creation import zeros
from ...ops.definition import Op, table
from ...tensor.tensor import Tensor, wrap_settled
from ...tracing.lazy_value import LazyValue
from ..programs.op_trace import OpTrace
from ..programs.program_cache import compile_single_use
from ..state.code_origin import is_own, is_standard

CAPTURE_ROOTS: Final[set[CodeType]] = set()
"""The code that runs functions on a tracer: frames outside of it are no part of a capture.

Each is named ``_run``."""


def may_fail(name: str) -> bool:
    """Return whether the op that a trace calls ``name`` fails for some values of its operands."""
    return name in table and bool(table[name].raises_for)


def is_checked_read(op: Op[...]) -> bool:
    """Return whether an op reads at indices: where these are known, trying it costs little."""
    return op.raises_for == op.operands[1:]


def pending_operands(op: Op[...], operands: Sequence[Any]) -> list[int]:
    """Return the numbers of the operands that decide whether an op fails and are not computed yet."""
    free = _free(op)
    return [
        k for k, x in enumerate(operands)
        if isinstance(x, Tensor) and type(x._value) is LazyValue and x._value.value is None and k not in free
    ]  # fmt: skip


def _free(op: Op[...]) -> list[int]:
    """Return the numbers of the operands whose values do not decide whether an op fails."""
    return [k for k, name in enumerate(op.operands) if name not in op.raises_for]


def run_now(
    trace: OpTrace, op: Op[...], operands: Sequence[Any], places: Sequence[int], attrs: Any, mode: str
) -> None:
    """Compute an op that was just recorded, and drop the result: an error is raised as in eager mode.

    Operands whose values do not decide are not computed: of an array that is indexed the shape will do.
    """
    free = _free(op)
    waiting = pending_operands(op, operands)
    computed: dict[int, Any] = {}
    if waiting:
        feeds = [feed.value for feed in trace.sources]
        program = compile_single_use(trace, [places[k] for k in waiting], mode)
        computed = dict(zip(waiting, program(feeds), strict=True))
    arguments: list[Any] = []
    for k, x in enumerate(operands):
        if k in computed:
            spec = trace.nodes[places[k]].spec
            arguments.append(wrap_settled(computed[k], ValueType.of(spec.dtype, trace.device)))
        elif k in free and isinstance(x, Tensor) and type(x._value) is LazyValue:
            arguments.append(zeros(x.shape, dtype=x.dtype, device=x.device))
        else:
            arguments.append(x.detach() if isinstance(x, Tensor) else x)
    table.run(op.name, arguments, attrs)


def is_error_handled(frame: FrameType | None) -> bool:
    """Return whether user code, from ``frame`` outwards, has a handler for an error raised now."""
    while frame is not None:
        code = frame.f_code
        if not is_own(code.co_filename) and not is_standard(code.co_filename):
            at = frame.f_lasti
            if any(first <= at < last for first, last in _try_ranges(code)):
                return True
        elif code.co_name == "_run" and code in CAPTURE_ROOTS:
            return False
        frame = frame.f_back
    return False


@cache
def _try_ranges(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Return the ranges of bytecode inside of ``try`` or ``with``."""
    parse = getattr(dis, "_parse_exception_table", None)
    if parse is None:  # unknown: everywhere
        return ((-1, len(code.co_code)),)
    return tuple((entry.start, entry.end) for entry in parse(code))
