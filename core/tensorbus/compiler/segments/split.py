"""A function in which captures break, rewritten: segments to capture, and statements that Python runs.

The rewritten function has the control flow and the lines that break, as they are. Each run of statements
between two of these is a segment: a function of the local names that it reads, which returns those that are
read behind it. Lines and columns stay those of the source, so that errors show the same.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from ..capture.break_sites import Position
from .evaluation_order import CALLEE, BreakMarks, Flattening, computes
from .function_source import FunctionSource, function_source
from .late_effects import BEGIN, CHECKED, EAGERLY, END, FINISH, IS_CALM, LOOKED, PUT_OFF, LateEffects
from .late_reads import SNAPSHOT, LateReads
from .name_flow import NameFlow, Names, names_bound, names_needed, names_read
from .plain_names import write_out
from .shown_numbers import Everything

LATE: Final = frozenset({PUT_OFF, SNAPSHOT})
"""The names of what segments call that put something off."""
HELPERS: Final = (CALLEE, SNAPSHOT, PUT_OFF, FINISH, BEGIN, END, IS_CALM, EAGERLY, CHECKED)
"""The names of what rewritten functions call."""
_MAKER: Final = ".maker"
_REFUSED_NAMES: Final = frozenset({"locals", "vars", "dir", "eval", "exec", "globals"})
_REFUSED_NODES: Final = (ast.NamedExpr, ast.Match, ast.TryStar, ast.Yield, ast.YieldFrom, ast.Await)
_COMPOUND: Final = (ast.If, ast.While, ast.For, ast.With, ast.Try)
_ADDING: Final = frozenset({"append", "appendleft", "extend", "insert"})
"""Methods that add to a sequence. Python runs them in loops: a segment would be guarded by its length."""
_CLOSING: Final = (ast.Lambda, ast.FunctionDef, ast.GeneratorExp, ast.ClassDef)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCode:
    """The code of a rewritten function, and that of its segments, by the names under which it finds them.

    ``effects`` are the places of the statements that it puts off.
    """

    code: CodeType
    segments: dict[str, CodeType]
    effects: tuple[Position, ...] = ()


def split(
    code: CodeType, breaks: dict[Position, bool], ops: set[Position], queues: bool = False
) -> SplitCode | None:
    """Return a function's code rewritten, or None where that would not do the same in all cases.

    ``queues``: some device that it uses queues its work.
    """
    source = function_source(code)
    if source is None:
        return None
    names = {n.id for n in ast.walk(source.node) if isinstance(n, ast.Name)}
    nodes = [n for s in source.node.body for n in ast.walk(s)]
    if names & _REFUSED_NAMES or any(isinstance(n, _REFUSED_NODES) for n in nodes):
        return None
    return _Splitting(source, code, breaks, ops, queues).run()


class _Splitting:
    def __init__(
        self, source: FunctionSource, code: CodeType, breaks: dict[Position, bool], ops: set[Position],
        queues: bool,
    ) -> None:  # fmt: skip
        self._code = code
        self._local: set[str] = {*code.co_varnames, *code.co_cellvars}
        self._node: ast.FunctionDef = copy.deepcopy(source.node)
        write_out(self._node, code, source.class_name)
        self._breaks = breaks
        self._marks = BreakMarks(self._node, breaks, ops)
        self._reads = LateReads(self._node, self._marks, self._local)
        self._effects = LateEffects(self._node, self._marks, self._local, self._reads, queues)
        self._native: set[int] = set()
        self._idle: set[int] = set()
        """The ids of statements that record no op."""
        self._hosted: set[str] = set()
        """Names of plain values that Python has read from tensors."""
        self._temps = 0
        self._outcomes: list[ast.stmt] = []
        self._has_begun = False
        """Whether something has run that may change what effects show on, where segments are made."""
        self._segments: dict[str, ast.FunctionDef] = {}
        self._declared = [s for s in ast.walk(self._node) if isinstance(s, (ast.Global, ast.Nonlocal))]

    def run(self) -> SplitCode | None:
        if self._rebinds_closed_names():
            return None
        body = self._lower(self._node.body)
        body[:0] = [self._outcome(name, ast.Constant(None)) for name, _ in self._effects.outcomes.values()]
        arguments = self._node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [x for x in (arguments.vararg, arguments.kwarg) if x is not None]
        self._flow = NameFlow(body, [x.arg for x in every], self._local)
        try:
            body = self._group(body)
        except _Unbound:
            return None
        if not self._segments and not any(breaks_inside for breaks_inside in self._breaks.values()):
            return None
        return self._compiled(body)

    def _rebinds_closed_names(self) -> bool:
        """Return whether a name that inner functions close over is bound more than once, or in a loop."""
        inner = [n for s in self._node.body for n in ast.walk(s) if isinstance(n, _CLOSING)]
        if any(isinstance(x, ast.Nonlocal) for f in inner for x in ast.walk(f)):
            return True
        closed = frozenset[str]().union(*(names_read(f, self._local) for f in inner))
        parameters = {x.arg for x in ast.walk(self._node.args) if isinstance(x, ast.arg)}
        for name in closed:
            stores = [
                n for s in self._node.body for n in ast.walk(s) if isinstance(n, ast.stmt)
                and not isinstance(n, _COMPOUND)
                and name in names_bound(n, {name})
            ]  # fmt: skip
            loops = [n for s in self._node.body for n in ast.walk(s) if isinstance(n, (ast.While, ast.For))]
            if len(stores) + (name in parameters) > 1 or any(name in names_bound(n, {name}) for n in loops):
                return True
        return False

    # Lowering: what breaks becomes a statement of its own.

    def _lower(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        body = self._effects.put_off(body, self._temporary)
        for s, seen in zip(body, self._reached(body), strict=True):
            if not isinstance(s, (ast.Global, ast.Nonlocal)):
                self._lower_statement(s, out, seen)
        return out

    def _reached(self, body: Sequence[ast.stmt]) -> list[bool]:
        """Return which statements captures are known to have reached: then those without ops have none."""
        met = [self._marks.within(s) or self._marks.has_ops(s) for s in body]
        left = [_leaves(s) or isinstance(s, ast.Raise) for s in body]
        return [any(met[k:]) or (any(met) and not any(left[:k])) for k in range(len(body))]

    def _lower_statement(self, s: ast.stmt, out: list[ast.stmt], seen: bool) -> None:
        broken, simple = self._marks.within(s), not isinstance(s, _COMPOUND)
        ops = self._marks.has_ops(s)
        if id(s) in self._reads.late or id(s) in self._effects.late:
            self._hosted |= names_bound(s, self._local)
            self._run_natively(s, out)
        elif id(s) in self._effects.branched:
            out.append(s)
        elif id(s) in self._marks.whole:
            self._run_natively(s, out)
        elif simple and broken:
            self._take_apart(s, out)
        elif simple:
            if isinstance(s, (ast.Delete, ast.Break, ast.Continue, ast.Raise, ast.Import, ast.ImportFrom)):
                self._run_natively(s, out)
            elif not ops and not self._hosted.isdisjoint(names_read(s, self._local)):
                self._hosted |= names_bound(s, self._local)
                self._run_natively(s, out)
            else:
                if not ops and (seen or not computes(s)):
                    self._idle.add(id(s))
                out.append(s)
        elif (
            not broken and not _leaves(s) and (ops or not seen)
            and self._hosted.isdisjoint(names_read(s, self._local))
        ):  # fmt: skip
            if not ops:
                self._idle.add(id(s))
            out.append(s)
        else:
            self._lower_compound(s, out)

    def _run_natively(self, s: ast.stmt, out: list[ast.stmt]) -> None:
        self._native.add(id(s))
        out.append(s)

    def _lower_compound(self, s: Any, out: list[ast.stmt]) -> None:
        lowered = copy.copy(s)
        self._native.add(id(lowered))
        if isinstance(s, (ast.For, ast.While)):
            for call in _added_to(s.body):
                self._marks.mark(call)
        if isinstance(s, ast.If):
            if self._marks.within(s.test):
                lowered.test = self._flatten(s.test, out)
        elif isinstance(s, ast.For):
            if self._marks.within(s.iter) or self._marks.has_ops(s.iter):
                lowered.iter = self._flatten(s.iter, out)
        elif isinstance(s, ast.While) and (self._marks.within(s.test) or self._marks.has_ops(s.test)):
            first: list[ast.stmt] = []
            test = self._flatten(s.test, first)
            end: list[ast.stmt] = [*self._lower(s.orelse), ast.copy_location(ast.Break(), s)]
            leave = ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), test), end, []), s.test)
            self._native |= {id(leave), id(end[-1])}
            lowered.test = ast.copy_location(ast.Constant(True), s.test)
            lowered.body, lowered.orelse = [*first, leave, *self._lower(s.body)], []
            out.append(lowered)
            return
        for name in ("body", "orelse", "finalbody"):
            if hasattr(s, name):
                setattr(lowered, name, self._lower(getattr(s, name)))
        if isinstance(s, ast.Try):
            lowered.handlers = [copy.copy(h) for h in s.handlers]
            for h in lowered.handlers:
                h.body = self._lower(h.body)
        out.append(lowered)

    def _take_apart(self, s: Any, out: list[ast.stmt]) -> None:
        """Put what a statement computes before and between what breaks into statements of their own."""
        flat = copy.copy(s)
        value = getattr(s, "value", None)
        if isinstance(s, ast.Assert):
            self._run_natively(s, out)
            return
        if isinstance(s, ast.AugAssign) and not isinstance(s.target, ast.Name):
            place: Any = copy.copy(s.target)
            place.value = self._emit(out, place.value, True, False)
            if isinstance(place, ast.Subscript):
                place.slice = self._emit(out, place.slice, True, False)
            read = copy.copy(place)
            read.ctx = ast.Load()
            held = self._emit(out, read, True, False)
            flat.target = ast.copy_location(ast.Name(held.id, ast.Store()), s.target)
            flat.value = self._flatten(s.value, out)
            self._run_natively(flat, out)
            last = ast.copy_location(ast.Assign([place], held), s)
            self._run_natively(last, out)
            return
        if isinstance(value, ast.expr):
            flat.value = self._flatten(value, out)
            if self._marks.breaks_at(value) and not self._marks.leads(value):
                self._hosted |= names_bound(s, self._local)
        if not self._marks.has_ops(s) or not self._hosted.isdisjoint(names_read(flat, self._local)):
            self._hosted |= names_bound(s, self._local)
        self._run_natively(flat, out)

    def _flatten(self, e: ast.expr, out: list[ast.stmt]) -> ast.expr:
        def emit(part: ast.expr, native: bool, host: bool) -> ast.expr:
            name: ast.expr = self._emit(out, part, native, host)
            return name

        return Flattening(self._marks, self._local, emit).flatten(e)

    def _emit(self, out: list[ast.stmt], e: ast.expr, native: bool, host: bool) -> Any:
        name = self._temporary()
        s = ast.copy_location(ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), e)], e), e)
        if host:
            self._hosted.add(name)
        hosted = not self._hosted.isdisjoint(names_read(e, self._local))
        if native or hosted or not self._marks.has_ops(e):
            self._native.add(id(s))
        out.append(s)
        return ast.copy_location(ast.Name(name, ast.Load()), e)

    def _temporary(self) -> str:
        name = f".t{self._temps}"
        self._temps += 1
        self._local.add(name)
        return name

    # Grouping: runs of other statements become segments.

    def _group(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        group: list[ast.stmt] = []
        for s in body:
            if id(s) in self._native:
                self._close(group, out)
                self._has_begun = self._has_begun or s not in self._outcomes
                blocks = ("body", "orelse", "finalbody") if isinstance(s, _COMPOUND) else ()
                for name in blocks:
                    if hasattr(s, name):
                        setattr(s, name, self._group(getattr(s, name)))
                for h in getattr(s, "handlers", ()):
                    h.body = self._group(h.body)
                out.append(s)
                continue
            group.append(s)
            if not self._flow.handled[id(s)].isdisjoint(names_bound(s, self._local)) or isinstance(
                s, ast.Return
            ):
                self._close(group, out)
        self._close(group, out)
        return out

    def _close(self, group: list[ast.stmt], out: list[ast.stmt]) -> None:
        """Make the statements collected a segment, if any records an op; Python runs others at its ends.

        Those that call something stay in it: clearing gradients, say, is part of a program.
        """
        if all(id(s) in self._idle for s in group):
            out += group
            group.clear()
            return
        work = [
            k for k, s in enumerate(group)
            if id(s) not in self._idle or any(isinstance(n, ast.Call) for n in ast.walk(s))
        ]  # fmt: skip
        first, last = work[0], work[-1] + 1
        if isinstance(group[-1], ast.Return):
            last = len(group)
        self._has_begun = self._has_begun or any(computes(s) for s in group[:first])
        out += group[:first]
        read = frozenset[str]().union(*(names_read(s, self._local) for s in group[first:last]))
        out += [self._outcome(n, e) for n, e in self._effects.outcomes.values() if n in read]
        out.append(self._segment(group[first:last]))
        self._has_begun = True
        out += group[last:]
        group.clear()

    def _outcome(self, name: str, e: ast.expr) -> ast.stmt:
        """Return what binds the outcome of a comparison that a segment asks for, which Python makes."""
        s = ast.Assign([ast.Name(name, ast.Store())], copy.deepcopy(e))
        for n in ast.walk(s):
            ast.copy_location(n, self._node.body[0] if isinstance(e, ast.Constant) else e)
        self._native.add(id(s))
        self._outcomes.append(s)
        return s

    def _segment(self, body: list[ast.stmt]) -> ast.stmt:
        flow, local = self._flow, self._local
        live = flow.live[id(body[-1])]
        stored: Names = frozenset().union(*(names_bound(s, local) for s in body))
        ends = isinstance(body[-1], ast.Return)
        after = frozenset() if ends else live & stored
        parameters = names_needed(body, after, local)
        if not parameters <= flow.bound[id(body[0])]:
            raise _Unbound
        ins, outs = sorted(parameters), sorted(after)
        name = f".segment{len(self._segments)}"
        taken: list[ast.expr] = [ast.Name(n, ast.Load()) for n in outs]
        value: Any = taken[0] if len(outs) == 1 else ast.Tuple(taken, ast.Load())
        closing = [ast.copy_location(ast.Return(value), body[-1])] if outs else []
        function = _definition(self._code.co_name, ins, [*self._declarations(body), *body, *closing])
        ast.copy_location(function, body[0])
        function.end_lineno, function.end_col_offset = body[-1].end_lineno, body[-1].end_col_offset
        self._segments[name] = function
        called: ast.expr = ast.Name(name, ast.Load())
        if self._has_begun and any(names_read(x, LATE) for x in body) and self._effects.looks:
            called = ast.Call(ast.Name(CHECKED, ast.Load()), [called, ast.Name(LOOKED, ast.Load())], [])
        call = ast.Call(called, [ast.Name(n, ast.Load()) for n in ins], [])
        statement: ast.stmt
        if ends:
            statement = ast.Return(call)
        elif outs:
            target: list[ast.expr] = [ast.Name(n, ast.Store()) for n in outs]
            statement = ast.Assign([target[0] if len(outs) == 1 else ast.Tuple(target, ast.Store())], call)
        else:
            statement = ast.Expr(call)
        for n in ast.walk(statement):
            ast.copy_location(n, body[0])
        return statement

    def _declarations(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the ``global`` and ``nonlocal`` statements for what a part of the function binds."""
        stored = {n for s in body for n in names_bound(s, Everything())}
        stored |= {
            n.id for s in body for n in ast.walk(s)
            if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
        }  # fmt: skip
        declarations: list[ast.stmt] = []
        for s in self._declared:
            names = [n for n in s.names if n in stored]
            if names:
                declarations.append(ast.copy_location(type(s)(names), s))
        return declarations

    def _compiled(self, body: list[ast.stmt]) -> SplitCode:
        node = self._node
        node.body = [*self._declarations(body), *self._effects.around(body, node)]
        node.decorator_list, node.returns = [], None
        free = [*self._code.co_freevars, *HELPERS, *self._segments]
        main = self._code_of(node, free)
        segments = {k: self._code_of(s, free) for k, s in self._segments.items()}
        return SplitCode(code=main, segments=segments, effects=self._effects.places)

    def _code_of(self, function: ast.FunctionDef, free: Sequence[str]) -> CodeType:
        """Compile a definition, with the names ``free`` around it."""
        own_names = {x.arg for x in ast.walk(function.args) if isinstance(x, ast.arg)}
        maker = _definition(_MAKER, [n for n in free if n not in own_names], [function])
        tree: Any = ast.Module(body=[maker], type_ignores=[])
        ast.copy_location(maker, function)
        ast.fix_missing_locations(tree)
        module = compile(tree, self._code.co_filename, "exec", dont_inherit=True)
        outer = next(x for x in module.co_consts if isinstance(x, CodeType) and x.co_name == _MAKER)
        code = next(x for x in outer.co_consts if isinstance(x, CodeType) and x.co_name == function.name)
        return code.replace(
            co_qualname=self._code.co_qualname,
            co_consts=tuple(x if not _is_effect(x) else self._named(x) for x in code.co_consts),
        )

    def _named(self, code: CodeType) -> CodeType:
        return code.replace(co_name=self._code.co_name, co_qualname=self._code.co_qualname)


def _is_effect(x: Any) -> bool:
    return isinstance(x, CodeType) and x.co_name.startswith(".effect")


class _Unbound(Exception):  # noqa: N818 - it never leaves this module
    """A segment would take or return a name that may not be bound."""


def _definition(name: str, parameters: Sequence[str], body: Sequence[ast.stmt]) -> ast.FunctionDef:
    definition = ast.FunctionDef(
        name=name, args=_arguments(parameters), body=[*body], decorator_list=[], returns=None
    )
    newer: Any = definition
    newer.type_params = []  # which newer versions of Python ask for
    return definition


def _arguments(names: Sequence[str]) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[], args=[ast.arg(n) for n in names], vararg=None, kwonlyargs=[], kw_defaults=[],
        kwarg=None, defaults=[],
    )  # fmt: skip


def _added_to(body: Sequence[ast.stmt]) -> list[ast.Call]:
    """Return the calls in the body of a loop that make a sequence longer which was there before the round."""
    fresh = {n for s in body for n in names_bound(s, Everything())}
    return [
        s.value for s in _statements(body)
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)
        and isinstance(s.value.func, ast.Attribute) and s.value.func.attr in _ADDING
        and isinstance(s.value.func.value, ast.Name) and s.value.func.value.id not in fresh
    ]  # fmt: skip


def _statements(node: Any) -> Iterator[ast.stmt]:
    """Go through statements and those in them, but not in what they define."""
    for child in node if isinstance(node, list) else ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, (ast.expr, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _statements(child)


def _leaves(s: ast.stmt) -> bool:
    """Return whether a statement may leave the block that it stands in."""

    def walk(n: ast.AST, loop: bool) -> bool:
        if isinstance(n, ast.Return) or (not loop and isinstance(n, (ast.Break, ast.Continue))):
            return True
        if isinstance(n, (ast.FunctionDef, ast.Lambda, ast.ClassDef)):
            return False
        inside = loop or isinstance(n, (ast.While, ast.For))
        return any(walk(child, inside) for child in ast.iter_child_nodes(n))

    return walk(s, False)
