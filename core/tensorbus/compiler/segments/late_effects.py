"""Statements that show numbers and decide nothing are put off until behind the work that follows them.

``print(f"loss {loss.item():.3f}")`` before ``loss.backward()`` would end a segment. A copy of the value is
taken in its place, as part of the program, and the statement runs behind the last work of its block. So that
nobody can tell,

- it is a call of ``print``, of ``append``, of a logger, a progress bar or a meter, perhaps below an ``if``;
  ``late_effect_calls`` looks at what is called, at the beginning of each call of the function;
- what it shows beside the numbers are constants, and names that the function never binds, whose values do not
  change; what of it can be evaluated without the numbers is, before all else;
- its texts cannot fail, whatever the numbers are;
- nothing that it passes shows anything, breaks, may leave the block, or reads what it adds to;
- where Python runs the segment, because a program failed say, it runs where it is written;
- where reads raise what failed before them, nothing has changed when the device is asked (``late_errors``).
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..capture.break_sites import Position
from .evaluation_order import BreakMarks
from .function_source import position_of
from .name_flow import names_bound, names_read

PUT_OFF: Final = ".put_off"
FINISH: Final = ".finish"
BEGIN: Final = ".begin"
END: Final = ".end"
IS_CALM: Final = ".is_calm"
EAGERLY: Final = ".eagerly"
CALLS: Final = ".calls"
"""The names of the functions of ``late_effect_calls`` in rewritten functions, and of what they work on."""
_LOGGING: Final = frozenset({"debug", "info", "warning", "error", "critical"})
_ADDING: Final = frozenset({"append", "appendleft"})
_KINDS: Final = frozenset({"float", "int"})
_PRINT_OPTIONS: Final = frozenset({"file", "sep", "end", "flush"})
_SPEC: Final = re.compile(r"([^{}]?[<>^=])?[-+ ]?0?\d*,?(\.\d+)?[eEfFgG%]")
"""Formats that every float, int and bool has."""
_SAMPLES: Final = (1.0, float("nan"), 10**30)
_SCALAR_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateEffect:
    """A statement to put off: what runs late, of the numbers in ``reads`` as ``.r0`` and so on.

    ``checked`` are expressions of what is called, each with how; ``ahead`` those to be evaluated before all
    else, whose values stay as they are; ``targets`` are the names of what is shown on or added to; ``at`` is
    the beginning of the statement: a break there means that it cannot wait.
    """

    statement: ast.stmt
    reads: list[tuple[str, ast.expr]]
    checked: list[tuple[str, ast.expr]]
    ahead: list[ast.expr]
    targets: frozenset[str]
    at: Position


class LateEffects:
    """Finds the statements of a function that can be put off, and puts them off; ``effects`` are those."""

    def __init__(
        self, node: ast.FunctionDef, marks: BreakMarks, local: Container[str], handled: Container[int]
    ) -> None:
        self._marks, self._local, self._handled = marks, local, handled
        self.effects: list[LateEffect] = []
        self.late: set[int] = set()
        """The ids of the statements that run what was put off."""
        self._parameters = {x.arg for x in ast.walk(node.args) if isinstance(x, ast.arg)}
        self._bound = frozenset[str]().union(*(names_bound(s, _Everything()) for s in node.body))

    def put_off(self, body: Sequence[ast.stmt], fresh: Callable[[], str]) -> list[ast.stmt]:
        """Return the statements of a block, those that can wait behind what follows; the last ones first."""
        out = [*body]
        for k in reversed(range(len(out))):
            s = out[k]
            if not self._marks.within(s) or id(s) in self._handled:
                continue
            if id(s) in self._marks.whole | self._marks.at_once:
                continue
            effect = _Reading(self, {n for x in body[:k] for n in names_bound(x, _Everything())}).effect(s)
            place = None if effect is None else self._place(effect, out, k + 1)
            if effect is None or place is None:
                continue
            if isinstance(last := out[place - 1], ast.Return):
                out[place - 1 : place] = _taken_apart(last, fresh())
            self._insert(effect, out, k, place, fresh())
        return out

    def _place(self, effect: LateEffect, out: Sequence[ast.stmt], first: int) -> int | None:
        """Return behind how many statements of a block an effect may run, if work lies between."""
        place = None
        touched = effect.targets
        for k in range(first, len(out)):
            s = out[k]
            if id(s) in self.late:  # of a later effect, which runs right behind this one
                return k
            if self._marks.within(s) or _shows(s) or not touched.isdisjoint(names_read(s, _Everything())):
                return place
            if isinstance(s, ast.Return):
                return k + 1 if self._marks.has_ops(s) or place is not None else None
            if any(isinstance(n, _LEAVING) for n in ast.walk(s)):
                return place
            if self._marks.has_ops(s):
                place = k + 1
        return place

    def _insert(self, effect: LateEffect, out: list[ast.stmt], k: int, place: int, name: str) -> None:
        number = len(self.effects)
        self.effects.append(effect)
        is_rare = isinstance(effect.statement, ast.If)
        arguments: list[ast.expr] = [ast.Constant(number), ast.Constant(is_rare)]
        for kind, operand in effect.reads:
            arguments += [ast.Constant(kind), operand]
        taken = ast.Assign(
            [ast.Name(name, ast.Store())], ast.Call(ast.Name(PUT_OFF, ast.Load()), arguments, [])
        )
        parts: list[ast.expr] = [ast.Name(CALLS, ast.Load()), ast.Constant(number)]
        parts.append(ast.Name(name, ast.Load()))
        late = ast.Expr(ast.Call(ast.Name(FINISH, ast.Load()), parts, []))
        if isinstance(out[place - 1], ast.Return):
            place -= 1
        self.late.add(id(late))
        known = {id(n) for _, operand in effect.reads for n in ast.walk(operand)}
        for new in (taken, late):
            for n in ast.walk(new):
                if id(n) not in known:
                    ast.copy_location(n, out[k])
        _shrink(taken.value)
        out.insert(place, late)
        out[k] = taken

    # What the rewritten function does with them.

    def around(self, body: list[ast.stmt], node: ast.FunctionDef) -> list[ast.stmt]:
        """Return the body of the rewritten function with what effects need around it."""
        if not self.effects:
            return body
        parts: list[ast.expr] = []
        for effect in self.effects:
            for kind, e in effect.checked:
                parts.append(ast.Tuple([ast.Constant(kind), e], ast.Load()))
            parts += [ast.Tuple([ast.Constant("value"), e], ast.Load()) for e in effect.ahead]
        looked = ast.Lambda(_no_arguments(), ast.Tuple(parts, ast.Load()))
        refused = ast.If(
            ast.UnaryOp(ast.Not(), ast.Call(ast.Name(IS_CALM, ast.Load()), [looked], [])),
            [ast.Return(ast.Call(ast.Name(EAGERLY, ast.Load()), *_own_arguments(node.args)))], [],
        )  # fmt: skip
        definitions: list[ast.stmt] = []
        for number, effect in enumerate(self.effects):
            names = [ast.arg(f".r{k}") for k in range(len(effect.reads))]
            definition: Any = ast.FunctionDef(
                name=f".effect{number}", args=_no_arguments(names), body=[effect.statement],
                decorator_list=[], returns=None,
            )  # fmt: skip
            definition.type_params = []
            definitions.append(ast.copy_location(definition, effect.statement))
        every: list[ast.expr] = [ast.Name(f".effect{k}", ast.Load()) for k in range(len(self.effects))]
        targets: list[ast.expr] = []
        for effect in self.effects:
            names_of: list[ast.expr] = [ast.Name(n, ast.Load()) for n in sorted(effect.targets)]
            targets.append(ast.Tuple(names_of, ast.Load()))
        arguments: list[ast.expr] = [ast.Tuple(every, ast.Load()), ast.Tuple(targets, ast.Load())]
        begin = ast.Assign(
            [ast.Name(CALLS, ast.Store())], ast.Call(ast.Name(BEGIN, ast.Load()), arguments, [])
        )
        end = ast.Expr(ast.Call(ast.Name(END, ast.Load()), [ast.Name(CALLS, ast.Load())], []))
        around = [refused, *definitions, begin, ast.Try(body, [], [], [end])]
        for s in (refused, begin, end, around[-1]):
            for n in ast.walk(s) if s is not around[-1] else (s,):
                if not hasattr(n, "lineno") and "lineno" in n._attributes:
                    ast.copy_location(n, node.body[0])
        return around


_LEAVING: Final = (ast.Return, ast.Break, ast.Continue, ast.Delete, ast.Raise, ast.Global, ast.Nonlocal)


class _Reading:
    """Looks at one statement; ``before`` are the names that its block binds before it."""

    def __init__(self, of: LateEffects, before: set[str]) -> None:
        self._marks, self._local = of._marks, of._local
        self._bound, self._sure = of._bound, before | of._parameters
        self._reads: list[tuple[str, ast.expr]] = []
        self._checked: list[tuple[str, ast.expr]] = []
        self._ahead: list[ast.expr] = []
        self._targets: set[str] = set()

    def effect(self, s: ast.stmt) -> LateEffect | None:
        """Return the statement as one to put off, or None."""
        at = position_of(s)
        try:
            statement = self._statement(s, False)
        except _Unfit:
            return None
        if at is None or not self._reads:
            return None
        at = Position(at.line, at.line, at.column, at.column)
        return LateEffect(
            statement=statement, reads=self._reads, checked=self._checked, ahead=self._ahead,
            targets=frozenset(self._targets), at=at,
        )  # fmt: skip

    def _statement(self, s: ast.stmt, is_inner: bool) -> ast.stmt:
        out: Any = copy.copy(s)
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            out.value = self._call(s.value, is_inner)
            return out  # type: ignore[no-any-return]
        if not isinstance(s, ast.If) or s.orelse or self._marks.within(s.test):
            raise _Unfit
        self._constant(s.test)
        out.body = [self._statement(x, True) for x in s.body]
        return out  # type: ignore[no-any-return]

    def _call(self, e: ast.Call, is_inner: bool) -> ast.expr:
        if self._marks.leads(e):
            raise _Unfit
        out, func = copy.copy(e), e.func
        if any(isinstance(x, ast.Starred) for x in e.args) or any(k.arg is None for k in e.keywords):
            raise _Unfit
        options = {k.arg for k in e.keywords}
        if isinstance(func, ast.Name) and func.id == "print" and options <= _PRINT_OPTIONS:
            self._fixed(func)
            file = next((k.value for k in e.keywords if k.arg == "file"), ast.Constant(None))
            self._checked.append(("print", ast.Tuple([func, file], ast.Load())))
            out.keywords = [k if k.arg == "file" else self._keyword(k, is_inner) for k in e.keywords]
            if file is not None and not isinstance(file, ast.Constant):
                self._target(file)
        elif isinstance(func, ast.Attribute):
            self._target(func.value)
            out.keywords = [self._keyword(k, is_inner) for k in e.keywords]
        else:
            raise _Unfit
        out.args = [self._value(x, is_inner) for x in e.args]
        if isinstance(func, ast.Attribute):
            self._check_method(func, out)
        return out

    def _check_method(self, func: ast.Attribute, e: ast.Call) -> None:
        """Have it looked at whose method is called; ``e`` is the call as it runs late."""
        if func.attr in _ADDING and (len(e.args) != 1 or e.keywords):
            raise _Unfit
        owner: ast.expr = func.value
        kind = "append" if func.attr in _ADDING else "log" if func.attr in _LOGGING else "call"
        if kind == "call":
            names: list[Any] = [ast.Constant(k.arg) for k in e.keywords]
            named = ast.Dict(names, [k.value for k in e.keywords])
            called_with = ast.Tuple([ast.Tuple([*e.args], ast.Load()), named], ast.Load())
            reads = [ast.arg(f".r{k}") for k in range(len(self._reads))]
            owner = ast.Tuple(
                [owner, ast.Lambda(_no_arguments(reads), copy.deepcopy(called_with))], ast.Load()
            )
        self._checked.append((f"{kind}.{func.attr}", owner))

    def _keyword(self, k: ast.keyword, is_inner: bool) -> ast.keyword:
        return ast.copy_location(ast.keyword(k.arg, self._value(k.value, is_inner)), k)

    def _target(self, e: ast.expr) -> None:
        """Take what is shown on or added to: a name that stays."""
        if not isinstance(e, ast.Name):
            raise _Unfit
        self._fixed(e)
        self._targets.add(e.id)

    def _fixed(self, e: ast.Name) -> None:
        if e.id in self._bound:
            raise _Unfit

    def _constant(self, e: ast.expr) -> None:
        """Take an expression of constants and names that stay, which is evaluated ahead too."""
        self._check_constant(e)
        if not isinstance(e, ast.Constant):
            self._ahead.append(e)

    def _check_constant(self, e: ast.AST) -> None:
        length = _sized(e)
        if length is not None:
            self._fixed(length)
            self._checked.append(("tensor", length))
        elif isinstance(e, ast.Name):
            self._fixed(e)
            self._ahead.append(e)
        elif not isinstance(e, _CONSTANT):
            raise _Unfit
        else:
            for child in ast.iter_child_nodes(e):
                self._check_constant(child)

    def _value(self, e: ast.expr, is_inner: bool) -> ast.expr:
        """Return an expression of numbers that are read, as it is evaluated late."""
        if not self._marks.within(e):
            self._constant(e)
            return e
        if self._marks.breaks_at(e):
            return self._read(e, is_inner)
        out: Any = copy.copy(e)
        if isinstance(e, ast.JoinedStr):
            out.values = [
                self._field(x, is_inner) if isinstance(x, ast.FormattedValue) else x for x in e.values
            ]
        elif isinstance(e, (ast.Tuple, ast.List)):
            out.elts = [self._value(x, is_inner) for x in e.elts]
        elif isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mod) and isinstance(e.left, ast.Constant):
            out.right = self._shown(e.right, is_inner)
            count = len(e.right.elts) if isinstance(e.right, ast.Tuple) else 1
            _check_text(e.left.value, lambda text, x: text % ((x,) * count))
        elif isinstance(e, ast.BinOp) and isinstance(e.op, _SCALAR_OPERATORS):
            out.left, out.right = self._number(e.left, is_inner), self._number(e.right, is_inner)
        elif isinstance(e, ast.BinOp) and isinstance(e.op, ast.Div) and _is_number(e.right):
            if not e.right.value:  # type: ignore[attr-defined]
                raise _Unfit
            out.left = self._number(e.left, is_inner)
        elif isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and e.func.attr == "format":
            if not isinstance(e.func.value, ast.Constant) or e.keywords:
                raise _Unfit
            out.args, count = [self._shown(x, is_inner) for x in e.args], len(e.args)
            _check_text(e.func.value.value, lambda text, x: text.format(*(x,) * count))
        elif isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in ("str", "repr"):
            if e.keywords or len(e.args) != 1 or e.func.id in self._local:
                raise _Unfit
            self._checked.append((e.func.id, e.func))
            out.args = [self._value(e.args[0], is_inner)]
        else:
            raise _Unfit
        return out  # type: ignore[no-any-return]

    def _field(self, f: ast.FormattedValue, is_inner: bool) -> ast.FormattedValue:
        if not self._marks.within(f.value):
            self._constant(ast.JoinedStr([f]))
            return f
        spec = f.format_spec
        if spec is not None:
            parts = spec.values if isinstance(spec, ast.JoinedStr) else [spec]
            text = "".join([str(x.value) if isinstance(x, ast.Constant) else "{}" for x in parts])
            if not _SPEC.fullmatch(text):
                raise _Unfit
        out = copy.copy(f)
        out.value = self._number(f.value, is_inner) if spec is not None else self._value(f.value, is_inner)
        return out

    def _shown(self, e: ast.expr, is_inner: bool) -> ast.expr:
        """Return one number, or a tuple of such, to be put into a text."""
        if not isinstance(e, ast.Tuple):
            return self._number(e, is_inner)
        out = copy.copy(e)
        out.elts = [self._number(x, is_inner) for x in e.elts]
        return out

    def _number(self, e: ast.expr, is_inner: bool) -> ast.expr:
        """Return a number that is read, one that stands there, or what is computed of these."""
        if _is_number(e):
            return e
        if not self._marks.within(e) or not isinstance(e, (ast.Call, ast.BinOp)):
            raise _Unfit
        return self._value(e, is_inner)

    def _read(self, e: ast.expr, is_inner: bool) -> ast.expr:
        """Return the late read of what ``e`` reads."""
        if not isinstance(e, ast.Call) or e.keywords or self._marks.leads(e):
            raise _Unfit
        name: ast.expr = ast.copy_location(ast.Name(f".r{len(self._reads)}", ast.Load()), e)
        out = copy.copy(e)
        if isinstance(e.func, ast.Attribute) and e.func.attr in ("item", "tolist") and not e.args:
            kind, operand = e.func.attr, e.func.value
            out.func = ast.copy_location(ast.Attribute(name, kind, ast.Load()), e.func)
        elif isinstance(e.func, ast.Name) and e.func.id in _KINDS and len(e.args) == 1:
            kind, operand = e.func.id, e.args[0]
            if isinstance(operand, ast.Starred) or kind in self._local or kind in self._bound:
                raise _Unfit
            self._checked.append((kind, e.func))
            out.args = [name]
        else:
            raise _Unfit
        is_there = isinstance(operand, ast.Name) and operand.id in self._sure
        if self._marks.within(operand) or (is_inner and not is_there):
            raise _Unfit
        self._reads.append((kind, operand))
        return out


class _Unfit(Exception):  # noqa: N818 - it never leaves this module
    """A statement cannot be put off."""


_CONSTANT: Final = (
    ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp,
    ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context,
)  # fmt: skip


def _sized(e: ast.AST) -> ast.Name | None:
    """Return the name of a tensor whose length along an axis an expression is."""
    of: Any = None
    if isinstance(e, ast.Subscript) and isinstance(e.value, ast.Attribute) and e.value.attr == "shape":
        of = e.value.value if isinstance(e.slice, ast.Constant) else None
    elif isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and e.func.attr == "size":
        of = e.func.value if len(e.args) == 1 and isinstance(e.args[0], ast.Constant) else None
    return of if isinstance(of, ast.Name) else None


def _shrink(call: Any) -> None:
    """Give the call that puts an effect off a place of its own: the beginning of the statement."""
    call.end_lineno, call.end_col_offset = call.lineno, call.col_offset


def _is_number(e: ast.expr) -> bool:
    value = e.value if isinstance(e, ast.Constant) else None
    return isinstance(value, (int, float)) and abs(value) < 1e300


def _check_text(text: Any, fill: Callable[[Any, Any], str]) -> None:
    """Raise ``_Unfit`` where a text cannot be filled with any number."""
    for sample in _SAMPLES:
        try:
            if not isinstance(text, str):
                raise TypeError
            fill(text, sample)
        except (TypeError, ValueError, OverflowError, LookupError, AttributeError):
            raise _Unfit from None


def _shows(s: ast.stmt) -> bool:
    """Return whether a statement prints, logs or adds to something: the order of such ones stays."""
    for n in ast.walk(s):
        if isinstance(n, ast.Call):
            name = getattr(n.func, "id", getattr(n.func, "attr", ""))
            if name == "print" or name in _ADDING | _LOGGING:
                return True
    return False


def _taken_apart(s: ast.Return, name: str) -> list[ast.stmt]:
    """Return what computes the value of a return statement, and one that returns it."""
    if s.value is None:
        return [s]
    assign = ast.Assign([ast.copy_location(ast.Name(name, ast.Store()), s.value)], s.value)
    last = ast.Return(ast.copy_location(ast.Name(name, ast.Load()), s.value))
    ast.copy_location(last, s)
    last.lineno, last.col_offset = s.end_lineno or s.lineno, s.end_col_offset or 0  # where no op is recorded
    return [ast.copy_location(assign, s), last]


def _no_arguments(names: Sequence[ast.arg] = ()) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[], args=[*names], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[]
    )


def _own_arguments(of: ast.arguments) -> tuple[list[ast.expr], list[ast.keyword]]:
    """Return the arguments with which a function calls another one of the same parameters."""
    args: list[ast.expr] = [ast.Name(x.arg, ast.Load()) for x in (*of.posonlyargs, *of.args)]
    if of.vararg is not None:
        args.append(ast.Starred(ast.Name(of.vararg.arg, ast.Load()), ast.Load()))
    keywords = [ast.keyword(x.arg, ast.Name(x.arg, ast.Load())) for x in of.kwonlyargs]
    if of.kwarg is not None:
        keywords.append(ast.keyword(None, ast.Name(of.kwarg.arg, ast.Load())))
    return args, keywords


class _Everything:
    def __contains__(self, name: object) -> bool:
        return True
