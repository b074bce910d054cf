"""The segments of a compiled function that breaks: its own, and those of functions it calls.

A capture that breaks says where. Each function of the user's with such a place is rewritten (``split``), and
runs in the place of the original one; its segments are compiled functions of their own. A segment whose
capture breaks adds its places, and the function is rewritten again.

A function that asks ``functools.cache`` what it counted is left whole: segments take what a cache keeps, and
count no hits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any, Final

from ...nn.hooks import EVERYWHERE, Hooks
from ...nn.module import Module
from ..capture.break_sites import BreakSites, Position
from ..replay.late_errors import tells_read_errors
from . import late_effect_calls as late
from .evaluation_order import CALLEE
from .late_effects import BEGIN, CHECKED, EAGERLY, END, FINISH, IS_CALM, PUT_OFF
from .late_read_calls import snapshot
from .late_reads import SNAPSHOT
from .shown_statements import shown_places
from .split import LATE, SplitCode, split

MAX_FUNCTIONS: Final = 8
"""How many functions of the same code, such as closures, are rewritten."""
MAX_MODULES: Final = 64
"""For how many modules the same method is rewritten."""
_CACHE_QUESTIONS: Final = frozenset({"cache_info", "cache_clear"})


class Segmentation:
    """The functions in the places of those that break, as far as captures know.

    ``compile_segment`` compiles the function of a segment, and hands places where its captures break to the
    function that it is given. ``segments`` are the compiled functions in use. ``withdrawn``: a capture of a
    segment asked about a cache, and nothing is divided any more.
    """

    def __init__(
        self,
        compile_segment: Callable[[FunctionType, CodeType, Callable[[BreakSites], bool]], Callable[..., Any]],
    ) -> None:
        self._compile = compile_segment
        self.withdrawn = self._queues = False
        self._codes: dict[int, CodeType] = {}
        self._breaks: dict[int, dict[Position, bool]] = {}
        self._ops: dict[int, set[Position]] = {}
        self._originals: dict[int, tuple[CodeType, CodeType]] = {}
        """The code of each segment, by id, and that of the function of which it is a part."""
        self._splits: dict[int, SplitCode | None] = {}
        self._functions: dict[int, dict[tuple[int, int], tuple[FunctionType, Any, FunctionType]]] = {}

    @property
    def segments(self) -> list[Any]:
        """The compiled functions of the segments."""
        return [
            cell.cell_contents
            for known in self._functions.values() for *_, rewritten in known.values()
            for name, cell in zip(rewritten.__code__.co_freevars, rewritten.__closure__ or (), strict=True)
            if name.startswith(".segment")
        ]  # fmt: skip

    def add(self, sites: BreakSites) -> bool:
        """Add the places of a capture; return whether any break among them is new."""
        if sites.asks_cache:
            self.withdrawn = True
        if not self._queues and any(tells_read_errors(device) for device in sites.devices):
            self._queues = True
            self._splits.clear()
            self._functions.clear()
        new = sites.given_up is not None and self._divide_at_late_statements(sites.given_up)
        if sites.opaque is not None:
            code = self._original(sites.opaque)
            shown = shown_places(code)
            if not shown <= self._breaks.setdefault(id(code), {}).keys():
                self._divide_at(code, shown)
                new = True
        for key, offsets in sites.breaks.items():
            code = self._original(sites.codes[key])
            known = self._breaks.setdefault(id(code), {})
            for offset, leads in offsets.items():
                at = Position.of_instruction(sites.codes[key], offset)
                if at is not None and (at not in known or (leads and not known[at])):
                    known[at] = leads or known.get(at, False)
                    self._splits.pop(id(code), None)
                    self._functions.pop(id(code), None)
                    new = True
        for key, loops in sites.loops.items():
            code = self._original(sites.codes[key])
            known = self._breaks.setdefault(id(code), {})
            if not loops <= known.keys():
                known.update(dict.fromkeys(loops, False))
                self._splits.pop(id(code), None)
                self._functions.pop(id(code), None)
                new = True
        for key, op_offsets in sites.ops.items():
            code = self._original(sites.codes[key])
            places = (Position.of_instruction(sites.codes[key], offset) for offset in op_offsets)
            self._ops.setdefault(id(code), set()).update(p for p in places if p is not None)
        return new

    def _divide_at_late_statements(self, segment: CodeType) -> bool:
        """Divide a function at all that it puts off, for a segment that does; return whether that is new."""
        if LATE.isdisjoint(segment.co_freevars):
            return False
        code = self._original(segment)
        parts, known = self._splits.get(id(code)), self._breaks.setdefault(id(code), {})
        if parts is None or known.keys() >= {*parts.effects}:
            return False
        self._divide_at(code, parts.effects)
        return True

    def _divide_at(self, code: CodeType, places: Iterable[Position]) -> None:
        self._breaks[id(code)].update(dict.fromkeys(places, False))
        self._splits.pop(id(code), None)
        self._functions.pop(id(code), None)

    def _original(self, code: CodeType) -> CodeType:
        _, original = self._originals.get(id(code), (code, code))
        self._codes[id(original)] = original
        return original

    def callee(self, function: Any) -> Any:
        """Return what to call in the place of a function: a rewritten one where it is known to break."""
        kind = type(function)
        if self.withdrawn:
            return function
        if kind is FunctionType:
            return self._rewritten(function)
        if kind is MethodType:
            method, owner = function.__func__, function.__self__
            if method is Module._run:  # of a module that is compiled where it is
                inner = self.callee(owner.forward) if not _is_hooked(owner._hooks) else owner.forward
                return function if inner == owner.forward else inner
            if type(method) is not FunctionType:
                return function
            inner = self._rewritten(method, owner if isinstance(owner, Module) else None)
            return function if inner is method else MethodType(inner, owner)
        if isinstance(function, Module) and _only_runs_forward(function):
            inner = self.callee(function.forward)
            return function if inner == function.forward else inner
        return function

    def _rewritten(self, function: FunctionType, owner: Any = None) -> FunctionType:
        """Return what runs in the place of a function; of the method of a module it is for that one alone."""
        code = function.__code__
        if id(code) not in self._breaks:
            return function
        known = self._functions.setdefault(id(code), {})
        key = (id(function), id(owner))
        entry = known.get(key)
        if entry is not None:
            return entry[2]
        if len(known) >= (MAX_FUNCTIONS if owner is None else MAX_MODULES):
            return function
        if id(code) not in self._splits:
            self._splits[id(code)] = split(
                code, self._breaks[id(code)], self._ops.get(id(code), set()), self._queues
            )
        parts = self._splits[id(code)]
        new = function if parts is None else self._with_segments(function, parts)
        known[key] = (function, owner, new)
        return new

    def _with_segments(self, function: FunctionType, parts: SplitCode) -> FunctionType:
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        helpers = {
            CALLEE: self.callee, SNAPSHOT: snapshot, PUT_OFF: late.put_off, FINISH: late.finish,
            BEGIN: late.begin, END: late.end, IS_CALM: late.is_calm, CHECKED: late.checked,
            EAGERLY: partial(self._run_eagerly, function, parts.effects),
        }  # fmt: skip
        cells |= {name: CellType(helper) for name, helper in helpers.items()}
        for name, code in parts.segments.items():
            self._originals[id(code)] = (code, function.__code__)
            cells[name] = CellType(
                self._compile(_function(function, code, cells), function.__code__, self.add)
            )
        new = _function(function, parts.code, cells)
        new.__defaults__, new.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        return new

    def _run_eagerly(
        self, function: FunctionType, effects: Iterable[Position], *args: Any, **kwargs: Any
    ) -> Any:
        """Run a function in which effects cannot wait, and divide it there from the next call on."""
        self._divide_at(function.__code__, effects)
        return function(*args, **kwargs)


def asks_cache(codes: Iterable[CodeType]) -> bool:
    """Return whether code names what a function with a cache is asked, in branches that did not run too."""
    return any(not _CACHE_QUESTIONS.isdisjoint(code.co_names) for code in codes)


def _is_hooked(hooks: Hooks) -> bool:
    return bool(hooks.before or hooks.after or hooks.back or hooks.left or EVERYWHERE)


def _only_runs_forward(module: Module) -> bool:
    """Return whether calling a module is calling its ``forward``."""
    plain = type(module).__call__ is Module.__call__
    return plain and not module.__dict__.get("_hooks") and not EVERYWHERE


def _function(like: FunctionType, code: CodeType, cells: dict[str, CellType]) -> FunctionType:
    closure = tuple([cells[name] for name in code.co_freevars])
    function = FunctionType(code, like.__globals__, like.__name__, None, closure)
    function.__module__, function.__qualname__ = like.__module__, like.__qualname__
    return function
