"""Comparisons of a compiled function with Python, and the warning where Python is the faster way."""

from __future__ import annotations

import linecache
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from types import CodeType
from typing import Any, Final

from ..devices.device import Device
from ..nn.module import Module
from ..ops.definition import USER, table
from ..system import env
from ..system.user_frame import user_frame
from ..tracing.sym_int import is_open
from .capture.break_sites import BreakSites, Position
from .capture.graph_break import GraphBreak
from .divided_comparison import DividedComparison
from .programs.op_trace import OpTrace
from .programs.program_cache import fits_in_memory
from .replay.cache_entry import CacheEntry
from .replay.eager_comparison import EagerComparison

_WEIGHTS: Final = {"light": 1, "function": 4, "heavy": 8}
"""The work of an op for each element that it reads or writes, by its cost."""
TOLD_FROM: Final = 200e-6
"""The seconds of a call from which a warning says that Python is faster; ``explain`` says it of any."""
SHOWN_BREAKS: Final = 3
"""Of how many breaks a warning shows the lines."""


class SlowerThanEagerWarning(UserWarning):
    """A compiled function is faster as Python runs it, which it does from now on: the message says where."""


class EagerChoice:
    """The comparisons of a compiled function with Python, in which its segments take part.

    ``losses`` says which calls Python runs, with the times of both ways. ``divided`` compares the function
    as a whole once it is divided, ``tracing`` the tracer, where Python runs the function at each call.
    """

    __slots__ = ("_name", "divided", "losses", "tracing")

    def __init__(self, name: str) -> None:
        self._name = name
        self.losses: list[str] = []
        self.tracing: EagerComparison | None = None
        self.divided: DividedComparison | None = None

    def compare_entry(
        self, entry: CacheEntry, traces: Sequence[OpTrace], sites: BreakSites, code: CodeType | None
    ) -> None:
        """Let the next calls of a new entry be compared with Python, where that is possible."""
        is_open = entry.shape_env is not None and bool(entry.shape_env.symbols)
        if is_open or entry.prepared is None or not may_be_compared(traces):
            return
        nodes = [trace.detached() for trace in traces]

        def decided(eager_wins: bool) -> None:
            if eager_wins and entry.comparison is not None:
                self._note_loss(entry.comparison, costliest_line(nodes, sites, code))

        entry.compare([trace.device for trace in traces], decided)

    def compare_tracing(
        self, devices: Sequence[Device], breaks: Callable[[], Sequence[GraphBreak]], code: CodeType | None
    ) -> None:
        """Compare calls on a tracer with Python's from now on; ``breaks`` are those of the last one."""

        def decided(eager_wins: bool) -> None:
            if eager_wins:
                lines = [*map(str, breaks()), costliest_line((), BreakSites(), code)]
                self._note_loss(comparison, lines[0])

        self.tracing = comparison = EagerComparison(devices, True, decided, arguments_vary=True)

    def compare_divided(self, function: Any, breaks: Sequence[GraphBreak]) -> None:
        """Compare calls of a function that is divided at these breaks with Python's, as wholes."""

        def decided(comparison: EagerComparison) -> None:
            if comparison.eager_wins:
                lines = [*dict.fromkeys(map(str, breaks))]
                more = [f"and {len(lines) - SHOWN_BREAKS} more"] if len(lines) > SHOWN_BREAKS else []
                self._note_loss(comparison, "\n  ".join([*lines[:SHOWN_BREAKS], *more]), divided=True)

        self.divided = DividedComparison(function, decided)

    def note_segment(self, traces: Sequence[OpTrace]) -> None:
        """Note what a segment computes: measured calls wait for it, or are none of Python's."""
        if self.divided is not None:
            self.divided.add_devices(trace.device for trace in traces)
            self.divided.keeps_segments |= not all(map(_may_run_in_python, traces))

    def account(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, str] | None:
        """Return whether Python runs divided calls like this one as wholes, and why; None: not known yet."""
        comparison = self.divided.comparison(args, kwargs) if self.divided is not None else None
        if comparison is None or comparison.eager_wins is None:
            return None
        outcome = "Python runs it" if comparison.eager_wins else "its segments are kept"
        return comparison.eager_wins, f"{comparison}: {outcome}"

    def _note_loss(self, comparison: EagerComparison, line: str, divided: bool = False) -> None:
        """Say once that Python is faster, where that matters."""
        if not self.losses and comparison.seconds[0] >= TOLD_FROM:
            warn_of_loss(self._name, comparison, line, divided)
        where = "divided" if divided else "mostly"
        self.losses.append(f"{comparison}: Python runs it, {where} at {line}")


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
    return all(not trace.is_symbolic and _may_run_in_python(trace) for trace in traces)


def _may_run_in_python(trace: OpTrace) -> bool:
    if any(op in table and table[op].family == USER for op in {node.op for node in trace.nodes}):
        return False
    return fits_in_memory(trace)


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


def warn_of_loss(name: str, comparison: EagerComparison, line: str, divided: bool) -> None:
    """Say that Python runs a function from now on; ``line`` is where a program is costly, or ``divided``."""
    _, level = user_frame()
    where, other = ("It is divided", "its segments") if divided else ("Most of its work is", "the program")
    warnings.warn(
        f"compile: of {name}, {comparison}, so Python runs it from now on where arguments are like these."
        f" {where} at\n  {line}\ncompare_eager=False keeps {other}.",
        SlowerThanEagerWarning,
        stacklevel=level + 1,
    )
