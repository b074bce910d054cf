"""Loops of the user's that one capture would unroll beyond a limit.

A loop that repeats its body is better captured once and run by Python, round by round: unrolled, each round
is compiled anew. A loop over layers records as much and repeats nothing, since every round reads parameters
of its own: it stays whole. Where the function cannot be divided at the loop, the capture ends all the same.
"""

from __future__ import annotations

import ast
import linecache
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import eq
from types import CodeType, FrameType
from typing import Any, Final

from ...autograd import engine
from ...autograd.hooks import finished
from ...nn.module import Module
from ...tensor.tensor import Tensor
from ..capture.break_sites import CAPTURING_CODE, BreakSites, Places, Position
from ..capture.graph_break import GraphBreak
from ..programs.op_trace import OpTrace
from ..state.code_origin import is_own, is_standard
from .evaluation_order import UNDIVIDED
from .function_source import FunctionSource, function_source, position_of
from .split import split

MIN_ROUNDS: Final = 8
"""How many rounds of a loop are to have been recorded."""
MIN_CHANGING_ROUNDS: Final = 4
"""How many, where rounds have shapes of their own, so that no kernel serves two."""
CHANGING_PART: Final = 4
"""Of the limit, loops whose shapes change may record one part of so many."""
READING_PART: Final = 32
"""At least one in so many ops of a layer reads a parameter, or something else from outside."""
_CALLS_FORWARD: Final = frozenset({Module.__call__.__code__, Module._run.__code__})
"""Code of tensorbus between a call of the user's and the function that it leads to, known to a division."""
_GOES_BACK: Final = frozenset({engine.walk.__code__, finished.__code__})
"""Code of what computes gradients, and what takes them: it follows the layers."""


@dataclass(frozen=True, slots=True)
class LongLoopFinder:
    """Finds the loop that has recorded at least ``limit`` ops; ``divided`` has the functions of segments."""

    limit: int
    divided: Mapping[CodeType, CodeType]

    @property
    def search_from(self) -> int:
        """The number of ops recorded before there can be such a loop."""
        return self.limit and max(self.limit // CHANGING_PART, 1)

    def find(self, sites: BreakSites, traces: Mapping[Any, OpTrace], frame: FrameType) -> GraphBreak | None:
        """Return the outermost loop on the stack that repeats beyond the limit, and note it in ``sites``."""
        history = _History(sites, traces)
        whole: list[int] = []
        site = self._dividable(sites, history, frame, whole)
        if site is None and (count := max([self._undividable(history, frame), *whole])):
            sites.note_break(frame)
            sites.repeats = True
            code, offset = _reached(frame, across=True)[0]
            site = _shown(code, Position.of_instruction(code, offset), f"{count} ops, and cannot be divided")
        return site

    def _dividable(
        self, sites: BreakSites, history: _History, frame: FrameType, whole: list[int]
    ) -> GraphBreak | None:
        """Return the outermost loop at which functions can be divided; ``whole`` takes counts of others."""
        places = _reached(frame)
        for k in range(len(places) - 1, -1, -1):
            code, offset = places[k]
            original = self.divided.get(code, code)
            source, at = function_source(original), Position.of_instruction(code, offset)
            if source is None or at is None:
                return None
            callers = places[k + 1 :]
            path = _path_to(source, at)
            for node in path:
                loop = position_of(node)
                if not isinstance(node, (ast.For, ast.While)) or loop is None:
                    continue
                count = self._repeated(history, callers, code, loop.covers)
                if not count:
                    continue
                if split(original, {loop: False}, {at}) is not None:
                    sites.note_loop(code, loop, callers)
                    how = f"{count} ops: a round is captured once"
                    return _shown(original, loop, how)
                whole.append(count)
            if not path or not isinstance(path[-1], ast.Call) or any(isinstance(n, UNDIVIDED) for n in path):
                return None
            if split(original, {at: True}, set()) is None:
                return None
        return None

    def _undividable(self, history: _History, frame: FrameType) -> int:
        """Return how many ops were recorded by what is called again and again, however that comes about."""
        if _walks_back(frame):
            return 0
        places = _reached(frame, across=True)
        for k in range(len(places) - 1, -1, -1):
            code, offset = places[k]
            at = Position.of_instruction(code, offset)
            if count := self._repeated(history, places[k + 1 :], code, partial(eq, at)):
                return count
        return 0

    def _repeated(
        self, history: _History, callers: Places, code: CodeType, covers: Callable[[Position], bool]
    ) -> int:
        """Return how many ops a part of a function has recorded, if it repeats and they are too many."""
        count, rounds, alike = history.rounds(callers, code, covers)
        changes = alike * 2 <= rounds
        least, limit = (MIN_CHANGING_ROUNDS, self.search_from) if changes else (MIN_ROUNDS, self.limit)
        return count if rounds >= least and count >= limit else 0


class _History:
    """The ops of traces, with the user's places that they were called from."""

    def __init__(self, sites: BreakSites, traces: Mapping[Any, OpTrace]) -> None:
        self._ops: list[tuple[Places, str, tuple[int, ...], Any]] = []
        for (device, place), places in sites.nodes.items():
            trace = traces.get(device)
            if trace is None or place >= len(trace.nodes):
                continue
            node = trace.nodes[place]
            sources = (trace.nodes[x].attrs["index"] for x in node.operands if trace.nodes[x].op == "input")
            taken = tuple(k for k in sources if isinstance(trace.sources[k].source, Tensor))
            self._ops.append((places, node.op, taken, str(node.spec.shape)))

    def rounds(
        self, callers: Places, code: CodeType, covers: Callable[[Position], bool]
    ) -> tuple[int, int, int]:
        """Return how many ops a part of a function has recorded, and how often most of them at least.

        Last, how often those of the same shapes. Ops that read tensors from outside count, if they are more
        than a few: they differ from layer to layer.
        """
        inside: dict[int, bool] = {}
        every: Counter[object] = Counter()
        reading: Counter[object] = Counter()
        shaped: Counter[object] = Counter()
        for places, op, taken, shape in self._ops:
            k = len(places) - 1 - len(callers)
            if k < 0 or places[k][0] is not code or places[k + 1 :] != callers:
                continue
            offset = places[k][1]
            if offset not in inside:
                p = Position.of_instruction(code, offset)
                inside[offset] = p is not None and covers(p)
            if inside[offset]:
                token = (op, taken, places[: k + 1])
                every[token] += 1
                shaped[token, shape] += 1
                if taken:
                    reading[token] += 1
        telling = reading if reading.total() * READING_PART >= every.total() else every
        return every.total(), _lower_quartile(telling), _lower_quartile(shaped)


def _lower_quartile(counts: Counter[object]) -> int:
    """Return how often three quarters of what was counted are there at least."""
    rest = counts.total() // 4
    for count in sorted(counts.values()):
        rest -= count
        if rest < 0:
            return count
    return 0


def _shown(code: CodeType, at: Position | None, how: str) -> GraphBreak:
    line = at.line if at is not None else code.co_firstlineno
    text = linecache.getline(code.co_filename, line).strip()
    return GraphBreak(
        reason=f"what repeats here has recorded {how}", file=code.co_filename, line=line, text=text
    )


def _reached(frame: FrameType | None, *, across: bool = False) -> Places:
    """Return the user's places on the stack, the innermost first, as far from outside as divisions reach.

    ``across``: all of them.
    """
    places: list[tuple[CodeType, int]] = []
    between = False
    while frame is not None and id(frame.f_code) not in CAPTURING_CODE:
        file = frame.f_code.co_filename
        if is_own(file) or is_standard(file):
            between = between or frame.f_code not in _CALLS_FORWARD
        else:
            if between and not across:
                places.clear()
            places.append((frame.f_code, frame.f_lasti))
            between = False
        frame = frame.f_back
    return tuple(places)


def _walks_back(frame: FrameType | None) -> bool:
    """Return whether gradients are being computed."""
    while frame is not None and id(frame.f_code) not in CAPTURING_CODE:
        if frame.f_code in _GOES_BACK:
            return True
        frame = frame.f_back
    return False


def _path_to(source: FunctionSource, at: Position) -> list[ast.AST]:
    """Return the nodes around a part of a function, the outermost first."""
    path: list[ast.AST] = []
    inner: Iterator[ast.AST] = iter(source.node.body)
    while (node := next((n for n in inner if _contains(n, at)), None)) is not None:
        path.append(node)
        if position_of(node) == at and isinstance(node, ast.expr):
            break
        inner = ast.iter_child_nodes(node)
    return path


def _contains(node: ast.AST, at: Position) -> bool:
    p = position_of(node)
    if p is None:  # as the clauses of a comprehension
        return any(_contains(child, at) for child in ast.iter_child_nodes(node))
    return p.covers(at)
