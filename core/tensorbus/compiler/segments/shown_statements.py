"""Statements that show numbers, as what runs later: one effect, or branches of such.

An ``if`` whose branches show numbers is one effect where its test is the same later, and each call may pay
for copies of what it shows; else each statement in its branches is one, and the ``if`` stays where it is.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from ..capture.break_sites import Position
from .evaluation_order import BreakMarks
from .function_source import function_source, position_of
from .late_read_calls import VALUE
from .late_reads import LateReads
from .name_flow import names_read
from .shown_numbers import Everything, ShownNumbers, Unfit, no_arguments, read_by, start_of

_LOGGING: Final = frozenset({"debug", "info", "warning", "error", "critical"})
_ADDING: Final = frozenset({"append", "appendleft"})
_PRINT_OPTIONS: Final = frozenset({"file", "sep", "end", "flush"})
LEAVING: Final = (ast.Return, ast.Break, ast.Continue, ast.Delete, ast.Raise, ast.Global, ast.Nonlocal)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A test around an effect that is the same at the beginning of the call, if its ``names`` are plain."""

    test: ast.expr
    names: list[ast.expr]
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEffect:
    """A statement to put off: what runs late, of the numbers in ``reads``, by the names that they have in it.

    ``checked`` are expressions of what is called, each with how; ``ahead`` those to be evaluated before all
    else, whose values stay as they are; both count where the ``conditions`` hold. ``targets`` are the names
    of what is shown on or added to; ``at`` is the beginning of the statement: a break there means that it
    cannot wait. ``original`` is the statement as it is written.
    """

    statement: ast.stmt
    reads: list[tuple[str, str, ast.expr]]
    checked: list[tuple[str, ast.expr]]
    ahead: list[ast.expr]
    targets: frozenset[str]
    at: Position
    conditions: tuple[Condition, ...]
    original: ast.stmt

    @property
    def effects(self) -> list[LateEffect]:
        """The effect itself."""
        return [self]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateBranches:
    """An ``if`` with effects in its branches, and other statements, which stay; ``test`` as it is there."""

    original: ast.If
    test: ast.expr
    body: list[Shown | ast.stmt]
    orelse: list[Shown | ast.stmt]

    @property
    def effects(self) -> list[LateEffect]:
        """The effects in order."""
        parts = [x for x in (*self.body, *self.orelse) if not isinstance(x, ast.AST)]
        return [effect for part in parts for effect in part.effects]

    @property
    def tests(self) -> Iterator[ast.expr]:
        """The tests of this and of what lies in its branches."""
        yield self.original.test
        for part in (*self.body, *self.orelse):
            if isinstance(part, LateBranches):
                yield from part.tests


Shown = LateEffect | LateBranches


class ShownStatement:
    """Looks at one statement of a function that binds the names ``bound``; ``sure`` are bound before it.

    ``numbers`` are expressions of names that are bound late. ``whole``: an ``if`` may be one effect.
    ``known`` gives a name to a comparison of identities, which Python makes before the segment: a segment
    that asks whether there is a logger would reach the logger.
    """

    def __init__(
        self, marks: BreakMarks, local: Container[str], bound: Container[str], sure: Container[str],
        numbers: Mapping[str, ast.expr], whole: bool, known: Callable[[ast.Compare], str], reads: LateReads,
        fresh: Callable[[], str],
    ) -> None:  # fmt: skip
        self._marks, self._local, self._bound, self._sure = marks, local, bound, sure
        self._numbers, self._whole, self._known = numbers, whole, known
        self._reads, self._fresh = reads, fresh

    def shown(self, s: ast.stmt) -> Shown | None:
        """Return the statement as what is put off, or None."""
        try:
            out = self._shown(s, ())
        except Unfit:
            return None
        return out if any(effect.reads for effect in out.effects) else None

    def _analysis(self, names: Sequence[str] = ()) -> ShownNumbers:
        unused = iter(names)
        return ShownNumbers(
            self._marks, self._local, self._bound, self._sure, self._numbers, lambda: next(unused)
        )

    def _shown(self, s: ast.stmt, conditions: tuple[Condition, ...]) -> Shown:
        if id(s) in self._marks.whole:
            raise Unfit
        refused = id(s) in self._marks.at_once
        if not isinstance(s, ast.If):
            if refused:
                raise Unfit
            return _Effect(self, conditions).read(s)
        if self._whole and not refused and not conditions:
            try:
                return _Effect(self, ()).read(s)
            except Unfit:
                pass
        return self._branches(s, conditions)

    def _branches(self, s: ast.If, conditions: tuple[Condition, ...]) -> LateBranches:
        analysis = self._analysis()
        if analysis.depends(s.test) or self._marks.has_ops(s.test):
            raise Unfit
        held: list[tuple[Condition, ...]] = []
        for holds in (True, False):
            try:
                _fixed_test(s.test, analysis)
            except Unfit:
                held.append(conditions)
            else:
                held.append((*conditions, Condition(test=s.test, names=analysis.ahead, holds=holds)))
        body, orelse = (
            self._block(block, known) for block, known in zip((s.body, s.orelse), held, strict=True)
        )
        test = _Identities(self).visit(copy.deepcopy(s.test))
        return LateBranches(original=s, test=test, body=body, orelse=orelse)

    def compared(self, e: ast.Compare) -> ast.expr:
        """Return a comparison in a test, or the name of its outcome."""
        parts = (e.left, *e.comparators)
        if not is_identity(e) or any(isinstance(x, ast.Name) and x.id in self._bound for x in parts):
            return e
        return ast.copy_location(ast.Name(self._known(e), ast.Load()), e)

    def _block(self, block: Sequence[ast.stmt], conditions: tuple[Condition, ...]) -> list[Shown | ast.stmt]:
        out: list[Shown | ast.stmt] = []
        targets: frozenset[str] = frozenset()
        inner = copy.copy(self)
        bound, inlined = set[str](), Counter[str]()
        for s in block:
            analysis = inner._analysis()
            binding = self._reads.in_branch(s, inner._numbers, self._fresh)
            if binding is not None:
                snapshots, numbers = binding
                out += snapshots
                bound |= numbers.keys()
                inner._numbers = {**inner._numbers, **numbers}
                inlined.update(names_loaded(s))
            elif analysis.depends(s) or shows(s):
                part = inner._shown(s, conditions)
                inlined.update(names_loaded(s))
                targets = targets.union(*(effect.targets for effect in part.effects))
                out.append(part)
            elif any(isinstance(n, LEAVING) for n in ast.walk(s)) or targets & names_read(s, Everything()):
                raise Unfit
            else:
                out.append(s)
        if any(n > inlined[name] for name, n in self._reads.count_of_reads(bound).items()):
            raise Unfit
        return out


class _Identities(ast.NodeTransformer):
    def __init__(self, of: ShownStatement) -> None:
        self._of = of

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        return self._of.compared(node)


def is_identity(e: ast.AST) -> bool:
    """Return whether an expression compares names and constants by what they are."""
    if not isinstance(e, ast.Compare) or not all(isinstance(op, (ast.Is, ast.IsNot)) for op in e.ops):
        return False
    return all(isinstance(x, (ast.Name, ast.Constant)) for x in (e.left, *e.comparators))


class _Effect:
    """Looks at a statement that is one effect."""

    def __init__(self, of: ShownStatement, conditions: tuple[Condition, ...]) -> None:
        self._marks, self._conditions = of._marks, conditions
        self._numbers = of._analysis([f".r{k}" for k in range(64)])
        self._targets: set[str] = set()

    def read(self, s: ast.stmt) -> LateEffect:
        """Return the effect. Raises ``Unfit`` where it is none."""
        statement, n = self._statement(s, False), self._numbers
        return LateEffect(
            statement=statement, reads=n.reads, checked=n.checked, ahead=n.ahead, conditions=self._conditions,
            targets=frozenset(self._targets), at=start_of(s), original=s,
        )  # fmt: skip

    def _statement(self, s: ast.stmt, is_inner: bool) -> ast.stmt:
        out: Any = copy.copy(s)
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            out.value = self._call(s.value, is_inner)
            return out  # type: ignore[no-any-return]
        if not isinstance(s, ast.If) or s.orelse or self._numbers.depends(s.test):
            raise Unfit
        out.test = self._numbers.constant(s.test, True)
        out.body = [self._statement(x, True) for x in s.body]
        return out  # type: ignore[no-any-return]

    def _call(self, e: ast.Call, is_inner: bool) -> ast.expr:
        if self._marks.leads(e):
            raise Unfit
        out, func = copy.copy(e), e.func
        if any(isinstance(x, ast.Starred) for x in e.args) or any(k.arg is None for k in e.keywords):
            raise Unfit
        options = {k.arg for k in e.keywords}
        if isinstance(func, ast.Name) and func.id == "print" and options <= _PRINT_OPTIONS:
            self._numbers.fixed(func)
            file = next((k.value for k in e.keywords if k.arg == "file"), ast.Constant(None))
            self._numbers.checked.append(("print", ast.Tuple([func, file], ast.Load())))
            out.keywords = [k if k.arg == "file" else self._keyword(k, is_inner) for k in e.keywords]
            if not isinstance(file, ast.Constant):
                self._target(file)
        elif isinstance(func, ast.Attribute):
            self._target(func.value)
            out.keywords = [self._keyword(k, is_inner) for k in e.keywords]
        else:
            raise Unfit
        out.args = [self._numbers.value(x, is_inner) for x in e.args]
        if isinstance(func, ast.Attribute):
            self._check_method(func, out)
        return out

    def _check_method(self, func: ast.Attribute, e: ast.Call) -> None:
        """Have it looked at whose method is called; ``e`` is the call as it runs late."""
        if func.attr in _ADDING and (len(e.args) != 1 or e.keywords):
            raise Unfit
        owner: ast.expr = func.value
        kind = "append" if func.attr in _ADDING else "log" if func.attr in _LOGGING else "call"
        if kind == "call":
            if any(read.startswith(VALUE) for _, read, _ in self._numbers.reads):
                raise Unfit
            names: list[Any] = [ast.Constant(k.arg) for k in e.keywords]
            named = ast.Dict(names, [k.value for k in e.keywords])
            called_with = ast.Tuple([ast.Tuple([*e.args], ast.Load()), named], ast.Load())
            reads = [ast.arg(name) for name, *_ in self._numbers.reads]
            owner = ast.Tuple(
                [owner, ast.Lambda(no_arguments(reads), copy.deepcopy(called_with))], ast.Load()
            )
        self._numbers.checked.append((f"{kind}.{func.attr}", owner))

    def _keyword(self, k: ast.keyword, is_inner: bool) -> ast.keyword:
        return ast.copy_location(ast.keyword(k.arg, self._numbers.value(k.value, is_inner)), k)

    def _target(self, e: ast.expr) -> None:
        """Take what is shown on or added to: a name that stays."""
        if not isinstance(e, ast.Name):
            raise Unfit
        self._numbers.fixed(e)
        self._targets.add(e.id)


def _fixed_test(e: ast.expr, analysis: ShownNumbers) -> None:
    """Take the names in a test that is the same later if they are plain. Raises ``Unfit`` for others."""
    if isinstance(e, ast.BoolOp):
        for x in e.values:
            _fixed_test(x, analysis)
    elif isinstance(e, ast.UnaryOp):
        _fixed_test(e.operand, analysis)
    elif isinstance(e, ast.Compare) and is_identity(e):
        for x in (e.left, *e.comparators):
            if isinstance(x, ast.Name):
                analysis.fixed(x)
    else:
        analysis.constant_parts(e)
        if analysis.checked or not analysis.is_settled(e):
            raise Unfit


def shown_places(code: CodeType) -> set[Position]:
    """Return where a function shows something, and where it reads what it shows, by its source.

    A branch that no call has come to may do so, on a file say that a capture cannot look into.
    """
    source = function_source(code)
    places: set[Position] = set()
    for s in ast.walk(source.node) if source is not None else ():
        if isinstance(s, ast.Expr) and shows(s):
            reads = {position_of(n) for n in ast.walk(s) if read_by(n, code.co_varnames)[0]}
            places |= {p for p in (position_of(s.value), *reads) if p is not None}
    return places


def names_loaded(s: ast.stmt) -> list[str]:
    """Return the names that a statement reads, each as often as it does."""
    return [n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]


def shows(s: ast.stmt) -> bool:
    """Return whether a statement prints, logs or adds to something: the order of such ones stays."""
    for n in ast.walk(s):
        if isinstance(n, ast.Call):
            name = getattr(n.func, "id", getattr(n.func, "attr", ""))
            if name == "print" or name in _ADDING | _LOGGING:
                return True
    return False
