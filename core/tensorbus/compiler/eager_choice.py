"""The cache entries that are compared with Python, and the warning where Python is the faster way."""

from __future__ import annotations

import linecache
import warnings
from collections import Counter
from collections.abc import Sequence
from math import prod
from types import CodeType
from typing import Any, Final

from ..nn.module import Module
from ..ops.definition import USER, table
from ..system import env
from ..system.user_frame import user_frame
from ..tracing.sym_int import is_open
from .capture.break_sites import BreakSites, Position
from .programs.op_trace import OpTrace
from .programs.program_cache import fits_in_memory
from .replay.eager_comparison import EagerComparison

_WEIGHTS: Final = {"light": 1, "function": 4, "heavy": 8}
"""The work of an op for each element that it reads or writes, by its cost."""
TOLD_FROM: Final = 200e-6
"""The seconds of a call from which a warning says that Python is faster; ``explain`` says it of any."""


class SlowerThanEagerWarning(UserWarning):
    """A compiled function is faster as Python runs it, which it does from now on: the message says where."""


def is_compared(option: bool | None) -> bool:
    """Return whether functions with this option of ``compile`` are compared with Python."""
    if option is None:
        return env.comparing_eager() and env.dump_dir() is None  # a dump waits in programs
    return option


def may_be_compared(traces: Sequence[OpTrace]) -> bool:
    """Return whether Python may run what became these traces.

    Not where it might not fit into memory; nor ops of users' own, that may talk to others who wait for them;
    nor open lengths, which have rules of their own (see ``ShapeSpecializations``).
    """
    for trace in traces:
        if trace.is_symbolic or any(op in table and table[op].family == USER for op in _ops(trace)):
            return False
        if not fits_in_memory(trace):
            return False
    return True


def code_of(function: Any) -> CodeType | None:
    """Return the code of a function, or of a module's ``forward``, where it is Python."""
    callee = function.forward if isinstance(function, Module) else function
    return getattr(callee, "__code__", None)


def costliest_line(traces: Sequence[OpTrace], sites: BreakSites, function: CodeType | None) -> str:
    """Return the line of the user's with most of the work, or with the first break, or the definition."""
    work: Counter[tuple[CodeType, int]] = Counter()
    for trace in traces:
        for place, node in enumerate(trace.nodes):
            site = sites.nodes.get((trace.device, place))
            if site is not None and not is_open(node.spec.shape):
                count = sum(prod(x.spec.shape) for x in (node, *node.inputs))
                work[site[0]] += count * _WEIGHTS[table[node.op].cost if node.op in table else "light"]
    code, offset = max(work, key=lambda site: work[site]) if work else (function, 0)
    if code is None:
        return "?"
    at = Position.of_instruction(code, offset) if work else None
    line = at.line if at is not None else code.co_firstlineno
    text = linecache.getline(code.co_filename, line).strip()
    return f"{code.co_filename}:{line}: {text or '?'}"


def warn_of_loss(name: str, comparison: EagerComparison, line: str) -> None:
    """Say that Python runs a function from now on."""
    _, level = user_frame()
    warnings.warn(
        f"compile: of {name}, {comparison}, so Python runs it from now on where arguments are like these."
        f" Most of its work is at\n  {line}\ncompare_eager=False keeps the program.",
        SlowerThanEagerWarning,
        stacklevel=level + 1,
    )


def _ops(trace: OpTrace) -> set[str]:
    return {node.op for node in trace.nodes}
