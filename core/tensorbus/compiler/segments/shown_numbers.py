"""Expressions of numbers that are read, as they are evaluated later, once the numbers are there.

Such an expression cannot fail, whatever the numbers are, and means the same later: beside numbers it has
constants, and names that the function never binds, whose values do not change.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, Final

from ..capture.break_sites import Position
from .evaluation_order import BreakMarks
from .late_read_calls import SEQUENCES, VALUE

KINDS: Final = frozenset({"float", "int"})
_SPEC: Final = re.compile(r"([^{}]?[<>^=])?[-+ ]?0?\d*,?(\.\d+)?[eEfFgG%]")
"""Formats that every float, int and bool has."""
_SAMPLES: Final = (1.0, float("nan"), 10**30)
_SCALAR_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult)
_CONSTANT: Final = (
    ast.Constant, ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp,
    ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context,
)  # fmt: skip


class Unfit(Exception):  # noqa: N818 - it never leaves this package
    """A statement cannot be put off."""


class Everything:
    """Holds each name."""

    def __contains__(self, name: object) -> bool:
        return True


class LateRead(ast.Call):
    """A call that reads a copy called ``name`` by ``kind``, in a statement that was put off."""

    kind: str
    name: str


class ShownNumbers:
    """Rewrites the expressions of one statement, for when the numbers are there.

    ``reads`` are what is copied where the statement is written, each with how it is read; ``fresh`` gives the
    names of the copies. ``checked`` are expressions of what is called, each with how, ``ahead`` those whose
    values are to be such that they stay as they are. ``bound`` are the names that the function binds,
    ``sure`` those that are bound here; ``numbers`` are expressions of others, of numbers that are read later.
    """

    def __init__(
        self, marks: BreakMarks, local: Container[str], bound: Container[str], sure: Container[str],
        numbers: Mapping[str, ast.expr], fresh: Callable[[], str],
    ) -> None:  # fmt: skip
        self._marks, self._local, self._bound, self._sure = marks, local, bound, sure
        self._numbers, self._fresh = numbers, fresh
        self.reads: list[tuple[str, str, ast.expr]] = []
        """The name of each copy, how it is read, and what it is a copy of."""
        self.checked: list[tuple[str, ast.expr]] = []
        self.ahead: list[ast.expr] = []

    def depends(self, e: ast.AST) -> bool:
        """Return whether a node has numbers that are read."""
        names = self._numbers
        return self._marks.within(e) or (
            bool(names) and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(e))
        )

    def fixed(self, e: ast.Name) -> None:
        """Take a name that stays."""
        if e.id in self._bound:
            raise Unfit

    def constant(self, e: ast.expr, is_inner: bool = False, spec: str = "") -> ast.expr:
        """Return an expression without numbers that are read, as it is evaluated late.

        It is evaluated ahead too, if its names stay what they are. Else it is evaluated where it is written.
        """
        if self.is_settled(e):
            self.constant_parts(e)
            if not isinstance(e, ast.Constant):
                self.ahead.append(e)
            return e
        is_there = isinstance(e, ast.Name) and (e.id in self._sure or e.id not in self._local)
        if not _is_passed(e) or (is_inner and not is_there):
            raise Unfit
        name = self._fresh()
        self.reads.append((name, f"{VALUE}:{spec}", e))
        return late_value(name, e)

    def is_settled(self, e: ast.AST) -> bool:
        """Return whether all names in an expression are parameters that the function does not bind."""
        names = {n.id for n in ast.walk(e) if isinstance(n, ast.Name)}
        return all(n in self._local and n not in self._bound for n in names)

    def constant_parts(self, e: ast.AST) -> None:
        """Take the names in an expression whose names stay."""
        length = _sized(e)
        if length is not None:
            self.fixed(length)
            self.checked.append(("tensor", length))
        elif isinstance(e, ast.Name):
            self.fixed(e)
            self.ahead.append(e)
        elif not isinstance(e, _CONSTANT):
            raise Unfit
        else:
            for child in ast.iter_child_nodes(e):
                self.constant_parts(child)

    def value(self, e: ast.expr, is_inner: bool = False) -> ast.expr:
        """Return an expression of numbers that are read, as it is evaluated late.

        ``is_inner``: whether it is evaluated is known later only.
        """
        is_text = isinstance(e, ast.JoinedStr) and not self.is_settled(e)
        if not self.depends(e) and not is_text:
            return self.constant(e, is_inner)
        if self._marks.breaks_at(e):
            return self._read(e, is_inner)
        if isinstance(e, ast.Name):
            return _named(self._resolved(self._numbers[e.id]), e)
        out: Any = copy.copy(e)
        if isinstance(e, ast.JoinedStr):
            out.values = [
                self._field(x, is_inner) if isinstance(x, ast.FormattedValue) else x for x in e.values
            ]
        elif isinstance(e, (ast.Tuple, ast.List)):
            out.elts = [self.value(x, is_inner) for x in e.elts]
        elif isinstance(e, ast.UnaryOp) and isinstance(e.op, (ast.UAdd, ast.USub)):
            out.operand = self._number(e.operand, is_inner)
        elif isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mod) and isinstance(e.left, ast.Constant):
            out.right = self._shown(e.right, is_inner)
            count = len(e.right.elts) if isinstance(e.right, ast.Tuple) else 1
            _check_text(e.left.value, lambda text, x: text % ((x,) * count))
        elif isinstance(e, ast.BinOp) and isinstance(e.op, _SCALAR_OPERATORS):
            out.left, out.right = self._number(e.left, is_inner), self._number(e.right, is_inner)
        elif isinstance(e, ast.BinOp) and isinstance(e.op, ast.Div) and is_number(e.right):
            if not e.right.value:  # type: ignore[attr-defined]
                raise Unfit
            out.left = self._number(e.left, is_inner)
        elif isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and e.func.attr == "format":
            if not isinstance(e.func.value, ast.Constant) or e.keywords:
                raise Unfit
            out.args, count = [self._shown(x, is_inner) for x in e.args], len(e.args)
            _check_text(e.func.value.value, lambda text, x: text.format(*(x,) * count))
        elif isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in ("str", "repr"):
            if e.keywords or len(e.args) != 1 or e.func.id in self._local:
                raise Unfit
            self.checked.append((e.func.id, e.func))
            out.args = [self.value(e.args[0], is_inner)]
        else:
            raise Unfit
        return out  # type: ignore[no-any-return]

    def _resolved(self, e: ast.expr) -> ast.expr:
        """Return the expression of a number that was read before, with copies of its copies."""
        return _Resolving(self).visit(copy.deepcopy(e))  # type: ignore[no-any-return]

    def again(self, e: LateRead) -> ast.expr:
        """Return the late read of a copy that is read later, too."""
        if e.kind in KINDS:
            self.checked.append((e.kind, ast.copy_location(ast.Name(e.kind, ast.Load()), e)))
        name = self._fresh()
        self.reads.append((name, e.kind, ast.copy_location(ast.Name(e.name, ast.Load()), e)))
        return late_read(e.kind, name, e)

    def passed(self, e: LateValue) -> ast.expr:
        """Return a value that is passed on late, for a statement that is late itself."""
        name = self._fresh()
        self.reads.append((name, f"{VALUE}:", ast.copy_location(ast.Name(e.id, ast.Load()), e)))
        return late_value(name, e)

    def numbers_of(self, name: str) -> ast.expr:
        """Return the expression of a number by its name."""
        return self._numbers[name]

    def has(self, name: str) -> bool:
        """Return whether a name is that of a number which is read later."""
        return name in self._numbers

    def _field(self, f: ast.FormattedValue, is_inner: bool) -> ast.FormattedValue:
        out, spec, text = copy.copy(f), f.format_spec, ""
        if spec is not None:
            parts = spec.values if isinstance(spec, ast.JoinedStr) else [spec]
            text = "".join([str(x.value) if isinstance(x, ast.Constant) else "{}" for x in parts])
        if not self.depends(f.value):
            if self.is_settled(f):
                self.constant(ast.JoinedStr([f]))
            elif "{" in text or text.endswith("c") or (text and f.conversion != -1):
                raise Unfit
            else:
                out.value = self.constant(f.value, is_inner, text)
            return out
        if spec is not None and not _SPEC.fullmatch(text):
            raise Unfit
        out.value = self._number(f.value, is_inner) if spec is not None else self.value(f.value, is_inner)
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
        if is_number(e):
            return e
        if not self.depends(e) or not isinstance(e, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Name)):
            raise Unfit
        out = self.value(e, is_inner)
        if is_text(out) or (isinstance(out, LateRead) and out.kind in SEQUENCES):
            raise Unfit
        return out

    def _read(self, e: ast.expr, is_inner: bool) -> ast.expr:
        """Return the late read of what ``e`` reads."""
        kind, operand = read_by(e, self._local)
        if not kind or self._marks.leads(e) or kind in self._bound or self._marks.within(operand):
            raise Unfit
        if kind in KINDS:
            self.checked.append((kind, e.func))  # type: ignore[attr-defined]
        is_there = isinstance(operand, ast.Name) and operand.id in self._sure
        if (is_inner and not is_there) or self.depends(operand):
            raise Unfit
        name = self._fresh()
        self.reads.append((name, kind, operand))
        return late_read(kind, name, e)


class LateValue(ast.Name):
    """The name of what was passed on where a statement is written."""


class _Resolving(ast.NodeTransformer):
    def __init__(self, of: ShownNumbers) -> None:
        self._of = of

    def visit_LateRead(self, node: LateRead) -> ast.AST:
        return self._of.again(node)

    def visit_LateValue(self, node: LateValue) -> ast.AST:
        return self._of.passed(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if not self._of.has(node.id):
            return node
        return self.visit(copy.deepcopy(self._of.numbers_of(node.id)))  # type: ignore[no-any-return]


def _named(resolved: Any, name: ast.Name) -> ast.expr:
    """Note the name that an expression was put in the place of."""
    resolved.name_before = name
    return resolved  # type: ignore[no-any-return]


class _ByName(ast.NodeTransformer):
    def visit(self, node: Any) -> Any:
        name = getattr(node, "name_before", None)
        return super().visit(node) if name is None else copy.deepcopy(name)


def by_name(e: ast.expr) -> ast.expr:
    """Return a late expression with the names of numbers that are bound before it."""
    return _ByName().visit(copy.deepcopy(e))  # type: ignore[no-any-return]


def read_by(e: Any, local: Container[str]) -> tuple[str, Any]:
    """Return how an expression reads numbers, and of what; an empty text where it does not."""
    if not isinstance(e, ast.Call) or e.keywords:
        return "", None
    if isinstance(e.func, ast.Attribute) and e.func.attr in SEQUENCES | {"item"} and not e.args:
        return e.func.attr, e.func.value
    if isinstance(e.func, ast.Name) and e.func.id in KINDS and e.func.id not in local and len(e.args) == 1:
        return ("", None) if isinstance(e.args[0], ast.Starred) else (e.func.id, e.args[0])
    return "", None


def late_read(kind: str, name: str, like: ast.expr) -> LateRead:
    """Return what reads a copy, in the place of ``like``."""
    value: ast.expr = ast.copy_location(ast.Name(name, ast.Load()), like)
    if kind in KINDS:
        out = LateRead(ast.copy_location(ast.Name(kind, ast.Load()), like), [value], [])
    else:
        out = LateRead(ast.copy_location(ast.Attribute(value, kind, ast.Load()), like), [], [])
    out.kind, out.name = kind, name
    return ast.copy_location(out, like)


def late_value(name: str, like: ast.expr) -> LateValue:
    """Return the name of what is passed on, in the place of ``like``."""
    return ast.copy_location(LateValue(name, ast.Load()), like)


def _is_passed(e: ast.expr) -> bool:
    """Return whether an expression is evaluated where it is written, and its value passed on."""
    if _sized(e) is not None:
        return True
    kinds = tuple(k for k in _CONSTANT if k not in (ast.JoinedStr, ast.FormattedValue))
    return all(isinstance(n, (*kinds, ast.Name, ast.Attribute)) for n in ast.walk(e))


def shrink(*nodes: Any) -> None:
    """Give what copies numbers a place of its own: the beginning of the statement."""
    for node in nodes:
        node.end_lineno, node.end_col_offset = node.lineno, node.col_offset


def start_of(s: ast.stmt) -> Position:
    """Return the beginning of a statement as a place: a break there means that it cannot wait."""
    return Position(s.lineno, s.lineno, s.col_offset, s.col_offset)


def no_arguments(names: Sequence[ast.arg] = ()) -> ast.arguments:
    """Return parameters of these names and no others."""
    return ast.arguments(
        posonlyargs=[], args=[*names], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[]
    )


def is_number(e: ast.AST) -> bool:
    """Return whether an expression is a number that stands there, and not a very large one."""
    value = e.value if isinstance(e, ast.Constant) else None
    return isinstance(value, (int, float)) and abs(value) < 1e300


def is_text(e: ast.AST) -> bool:
    """Return whether a late expression gives a text, or several values."""
    if isinstance(e, (ast.JoinedStr, ast.Tuple, ast.List)):
        return True
    if isinstance(e, ast.BinOp) and isinstance(e.op, ast.Mod):
        return True
    return isinstance(e, ast.Call) and not isinstance(e, LateRead)


def _sized(e: ast.AST) -> ast.Name | None:
    """Return the name of a tensor whose length along an axis an expression is."""
    of: Any = None
    if isinstance(e, ast.Subscript) and isinstance(e.value, ast.Attribute) and e.value.attr == "shape":
        of = e.value.value if isinstance(e.slice, ast.Constant) else None
    elif isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and e.func.attr == "size":
        of = e.func.value if len(e.args) == 1 and isinstance(e.args[0], ast.Constant) else None
    return of if isinstance(of, ast.Name) else None


def _check_text(text: Any, fill: Callable[[Any, Any], str]) -> None:
    """Raise ``Unfit`` where a text cannot be filled with any number."""
    for sample in _SAMPLES:
        try:
            if not isinstance(text, str):
                raise TypeError
            fill(text, sample)
        except (TypeError, ValueError, OverflowError, LookupError, AttributeError):
            raise Unfit from None
