"""Expressions taken apart in the order in which Python evaluates them.

What stops a capture then stands in a statement of its own, with what is computed before it in others: of
``print(model(x).mean().item())`` the call of the model and the mean can be captured.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Iterable
from typing import Any, Final

from ..capture.break_sites import Position
from .function_source import position_of

CALLEE: Final = ".callee"
"""The name of the function that returns what to call in the place of a function which breaks inside."""
UNDIVIDED: Final = (
    ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp, ast.BoolOp, ast.Starred,
    ast.NamedExpr,
)  # fmt: skip
"""Expressions whose parts are evaluated sometimes, or more than once: they are not taken apart."""
_BINDING: Final = (ast.Assign, ast.AnnAssign)


class BreakMarks:
    """The nodes of a function at which captures broke, and those with ops, by their position.

    A break that no node has the position of is one of the innermost statement on its line.
    """

    def __init__(self, root: ast.FunctionDef, breaks: dict[Position, bool], ops: Iterable[Position]) -> None:
        self._at: dict[int, bool] = {}
        """Whether each marked node calls a function that breaks inside, by id."""
        self.whole: set[int] = set()
        """The ids of statements that Python runs as they are."""
        self.at_once: set[int] = set()
        """The ids of statements not to be put off: a capture broke where their numbers are copied."""
        self._loops: set[int] = set()
        """The ids of loops that Python runs, round by round."""
        nodes = [(p, n) for s in root.body for n in ast.walk(s) if (p := position_of(n)) is not None]
        self._ops = [*ops]
        for position, leads in breaks.items():
            if (position.line, position.column) == (position.end_line, position.end_column):
                self.at_once |= {id(n) for p, n in nodes if isinstance(n, ast.stmt) and _begins(p, position)}
                continue
            loop = next((n for p, n in nodes if p == position and isinstance(n, (ast.For, ast.While))), None)
            if loop is not None:
                self._loops.add(id(loop))
                continue
            node = next((n for p, n in nodes if p == position and isinstance(n, ast.expr)), None)
            if node is not None:
                self._at[id(node)] = leads and isinstance(node, ast.Call)
                continue
            bound = next((n for p, n in nodes if p == position and isinstance(n, _BINDING)), None)
            if bound is not None and bound.value is not None and position_of(bound.value) in breaks:
                self.at_once.add(id(bound))
                continue
            around = [
                n for p, n in nodes if isinstance(n, ast.stmt) and p.line <= position.line <= p.end_line
            ]
            if around:
                self._mark_statement(around[-1])

    def _mark_statement(self, s: ast.AST) -> None:
        header = s.test if isinstance(s, (ast.If, ast.While)) else s.iter if isinstance(s, ast.For) else None
        if header is not None:
            self._at.setdefault(id(header), False)
        else:
            self.whole.add(id(s))

    def mark(self, node: ast.expr) -> None:
        """Let Python evaluate a node, as if captures broke there."""
        self._at.setdefault(id(node), False)

    def breaks_at(self, node: ast.AST) -> bool:
        """Return whether captures broke at this very node."""
        return id(node) in self._at

    def leads(self, node: ast.AST) -> bool:
        """Return whether a node calls a function that breaks inside."""
        return self._at.get(id(node), False)

    def within(self, node: ast.AST) -> bool:
        """Return whether captures broke anywhere in a node."""
        return any(id(n) in self._at or id(n) in self.whole or id(n) in self._loops for n in ast.walk(node))

    def has_ops(self, node: ast.AST) -> bool:
        """Return whether a node recorded ops."""
        p = position_of(node)
        if p is None:
            return False
        first, last = (p.line, p.column), (p.end_line, p.end_column)
        return any(first <= (o.line, o.column) and (o.end_line, o.end_column) <= last for o in self._ops)


class Flattening:
    """Takes expressions apart; ``emit(node, native)`` is told each part, and returns a name for its value."""

    def __init__(
        self, marks: BreakMarks, local: Container[str], emit: Callable[[ast.expr, bool, bool], ast.expr]
    ) -> None:
        self._marks, self._local, self._emit = marks, local, emit

    def flatten(self, e: ast.expr) -> ast.expr:
        """Return an expression that is left when all before what breaks in it has been emitted."""
        if not self._marks.within(e):
            return self._part(e)
        if isinstance(e, UNDIVIDED):
            return e
        rebuilt = self._rebuilt(e)
        return ast.copy_location(rebuilt, e)

    def _part(self, e: ast.expr) -> ast.expr:
        """Return an atom for an expression in which nothing breaks."""
        if isinstance(e, ast.Constant) or (isinstance(e, ast.Name) and e.id in self._local):
            return e
        return self._emit(e, not computes(e), False)

    def _atom(self, e: ast.expr) -> ast.expr:
        flat = self.flatten(e)
        if flat is e and not self._marks.within(e):
            return flat
        if isinstance(flat, ast.Name) and flat.id.startswith("."):
            return flat
        return self._emit(flat, True, self._marks.breaks_at(e) and not self._marks.leads(e))

    def _rebuilt(self, e: ast.expr) -> ast.expr:
        if isinstance(e, ast.Call):
            return self._call(e)
        if isinstance(e, ast.Attribute):
            return ast.Attribute(self._atom(e.value), e.attr, e.ctx)
        if isinstance(e, ast.Subscript):
            value = self._atom(e.value)
            sliced = any(isinstance(n, (ast.Slice, ast.Starred)) for n in ast.walk(e.slice))
            return ast.Subscript(value, e.slice if sliced else self._atom(e.slice), e.ctx)
        if isinstance(e, ast.BinOp):
            left = self._atom(e.left)
            return ast.BinOp(left, e.op, self._atom(e.right))
        if isinstance(e, ast.UnaryOp):
            return ast.UnaryOp(e.op, self._atom(e.operand))
        if isinstance(e, ast.Compare) and len(e.ops) == 1:
            left = self._atom(e.left)
            return ast.Compare(left, e.ops, [self._atom(e.comparators[0])])
        if isinstance(e, (ast.Tuple, ast.List)) and not any(isinstance(x, ast.Starred) for x in e.elts):
            return type(e)([self._atom(x) for x in e.elts], e.ctx)
        if isinstance(e, ast.Dict) and all(k is not None for k in e.keys):
            keys: list[Any] = []
            values = []
            for k, v in zip(e.keys, e.values, strict=True):
                assert k is not None
                keys.append(self._atom(k))
                values.append(self._atom(v))
            return ast.Dict(keys, values)
        if isinstance(e, ast.JoinedStr):
            return self._text(e)
        return e

    def _text(self, e: ast.JoinedStr) -> ast.expr:
        """Return a text whose first computed field is taken apart: it is formatted before the next."""
        parts: list[ast.expr] = []
        done = False
        for part in e.values:
            if not done and isinstance(part, ast.FormattedValue) and not isinstance(part.value, ast.Constant):
                done = True
                formatted = ast.FormattedValue(self.flatten(part.value), part.conversion, part.format_spec)
                part = ast.copy_location(formatted, part)
            parts.append(part)
        return ast.JoinedStr(parts)

    def _call(self, e: ast.Call) -> ast.expr:
        arguments = [*e.args, *[k.value for k in e.keywords]]
        unpacks = any(isinstance(x, ast.Starred) for x in e.args) or any(k.arg is None for k in e.keywords)
        later = not all(isinstance(x, ast.Constant) or self._is_local(x) for x in arguments)
        func = e.func
        if isinstance(func, ast.Attribute):
            func = ast.copy_location(ast.Attribute(self._atom(func.value), func.attr, func.ctx), func)
            if later:
                func = self._emit(func, True, False)
        elif not (isinstance(func, ast.Name) and (func.id in self._local or not later)):
            func = self._atom(func)
        if self._marks.leads(e):
            func = ast.copy_location(ast.Call(ast.Name(CALLEE, ast.Load()), [func], []), func)
        if unpacks:
            return ast.Call(func, e.args, e.keywords)
        args = [self._atom(x) for x in e.args]
        return ast.Call(func, args, [ast.keyword(k.arg, self._atom(k.value)) for k in e.keywords])

    def _is_local(self, e: ast.expr) -> bool:
        return isinstance(e, ast.Name) and e.id in self._local


def _begins(p: Position, at: Position) -> bool:
    return (p.line, p.column) == (at.line, at.column)


def computes(e: ast.AST) -> bool:
    """Return whether an expression may compute something: it calls, or applies an operator."""
    kinds = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript)
    return any(isinstance(n, kinds) for n in ast.walk(e))
