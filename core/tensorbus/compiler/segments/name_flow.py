"""The local names of a function that are live behind each statement, and those bound before it.

A segment takes the names that it reads and returns those that are read behind it. In a block that may be left
by an exception which somebody handles, what is read behind the block is live everywhere in it.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

Names = frozenset[str]
_NONE: Final[Names] = frozenset()
_SCOPES: Final = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def names_read(node: ast.AST, local: Container[str]) -> Names:
    """Return the local names that a node reads, or deletes; by code that it defines too."""
    return frozenset(name for name in _read(node, _NONE) if name in local)


def _read(node: ast.AST, hidden: Names) -> Iterator[str]:
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Store) and node.id not in hidden:
            yield node.id
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    if isinstance(node, _COMPREHENSIONS):
        hidden = hidden | {n for part in node.generators for n in _stored(part.target)}
    elif isinstance(node, _SCOPES):
        hidden = hidden | _bound_inside(node)
    for child in ast.iter_child_nodes(node):
        yield from _read(child, hidden)


def _bound_inside(node: ast.AST) -> Names:
    bound = {x.arg for x in ast.walk(node) if isinstance(x, ast.arg)}
    if isinstance(node, ast.FunctionDef):
        free = {n for x in ast.walk(node) if isinstance(x, (ast.Global, ast.Nonlocal)) for n in x.names}
        bound |= {n for s in node.body for n in _stored(s)} - free
    return frozenset(bound)


def names_bound(node: ast.AST, local: Container[str]) -> Names:
    """Return the local names that a statement may bind."""
    return frozenset(name for name in _stored(node) if name in local)


def _stored(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    if isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
        return
    if isinstance(node, ast.Lambda) or (isinstance(node, ast.AnnAssign) and node.value is None):
        return
    for child in ast.iter_child_nodes(node):
        if not isinstance(node, _COMPREHENSIONS) or not isinstance(child, ast.comprehension):
            yield from _stored(child)


@dataclass(slots=True)
class _Exits:
    """The names live where a block is left: by ``break``, ``continue``, and an exception that is handled."""

    broken: Names = _NONE
    continued: Names = _NONE
    handled: Names = _NONE
    breaks: list[Names] = field(default_factory=list)


class NameFlow:
    """The flow of the names ``local`` of a function: ``live`` behind and ``bound`` before each statement.

    Both are by the id of the statement. Of a statement in a block with handlers, ``handled`` has the names
    that are live where it is left by an exception.
    """

    def __init__(self, body: Sequence[ast.stmt], parameters: Iterable[str], local: Container[str]) -> None:
        self._local = local
        self.live: dict[int, Names] = {}
        self.handled: dict[int, Names] = {}
        self.bound: dict[int, Names] = {}
        self._live_block(body, _NONE, _Exits())
        self._bind_block(body, frozenset(parameters), [])

    def _live_block(self, body: Sequence[ast.stmt], after: Names, exits: _Exits) -> Names:
        for statement in reversed(body):
            after = after | exits.handled
            self.live[id(statement)] = after
            self.handled[id(statement)] = exits.handled
            after = self._live_before(statement, after, exits)
        return after

    def _live_before(self, s: ast.stmt, after: Names, exits: _Exits) -> Names:
        read, local = names_read, self._local
        if isinstance(s, ast.If):
            both = self._live_block(s.body, after, exits) | self._live_block(s.orelse, after, exits)
            return read(s.test, local) | both
        if isinstance(s, (ast.While, ast.For)):
            done = self._live_block(s.orelse, after, exits)
            head, known = done, None
            while head != known:
                known = head
                inner = self._live_block(s.body, head, _Exits(after, head, exits.handled))
                if isinstance(s, ast.While):
                    head = head | inner | read(s.test, local)
                else:
                    head = head | (inner - names_bound(s.target, local)) | read(s.target, local)
            return head if isinstance(s, ast.While) else head | read(s.iter, local)
        if isinstance(s, ast.With):
            inside = _Exits(exits.broken, exits.continued, exits.handled | after)
            entered: Names = frozenset().union(*(read(item, local) for item in s.items))
            return entered | self._live_block(s.body, after, inside)
        if isinstance(s, ast.Try):
            last = self._live_block(s.finalbody, after, exits)
            handlers = last if s.finalbody else exits.handled
            for handler in s.handlers:
                handlers = handlers | (self._live_block(handler.body, last, exits) - {handler.name})
                handlers = handlers | (read(handler.type, local) if handler.type else _NONE)
            inside = _Exits(exits.broken | last, exits.continued | last, exits.handled | handlers)
            tail = self._live_block(s.orelse, last, exits)
            return self._live_block(s.body, tail, inside) | handlers
        if isinstance(s, ast.Break):
            return exits.broken | exits.handled
        if isinstance(s, ast.Continue):
            return exits.continued | exits.handled
        if isinstance(s, (ast.Return, ast.Raise)):
            return read(s, local) | exits.handled
        unbound = after if isinstance(s, ast.AugAssign) else after - names_bound(s, local)
        return unbound | read(s, local)

    def _bind_block(self, body: Sequence[ast.stmt], bound: Names | None, breaks: list[Names]) -> Names | None:
        """Return what is bound behind a block; None: it is not reached."""
        for statement in body:
            self.bound[id(statement)] = bound if bound is not None else frozenset()
            if bound is not None:
                bound = self._bound_after(statement, bound, breaks)
        return bound

    def _bound_after(self, s: ast.stmt, bound: Names, breaks: list[Names]) -> Names | None:
        if isinstance(s, ast.If):
            one, other = self._bind_block(s.body, bound, breaks), self._bind_block(s.orelse, bound, breaks)
            return _met(one, other)
        if isinstance(s, (ast.While, ast.For)):
            inner = bound | (names_bound(s.target, self._local) if isinstance(s, ast.For) else _NONE)
            left: list[Names] = []
            self._bind_block(s.body, inner, left)
            if isinstance(s, ast.While) and isinstance(s.test, ast.Constant) and s.test.value:
                return frozenset.intersection(*left) if left else None
            self._bind_block(s.orelse, bound, breaks)
            return bound
        if isinstance(s, ast.With):
            return self._bind_block(s.body, bound | names_bound(_items(s), self._local), breaks)
        if isinstance(s, ast.Try):
            done = self._bind_block(s.body, bound, breaks)
            done = self._bind_block(s.orelse, done, breaks)
            for handler in s.handlers:
                inside = bound | ({handler.name} if handler.name else _NONE)
                done = _met(done, self._bind_block(handler.body, inside, breaks))
            last = self._bind_block(s.finalbody, bound, breaks)
            return None if done is None or last is None else done | last
        if isinstance(s, ast.Break):
            breaks.append(bound)
        if isinstance(s, (ast.Break, ast.Continue, ast.Return, ast.Raise)):
            return None
        removed = {
            x.id for x in ast.walk(s) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Del)
        }  # fmt: skip
        return (bound | certainly_bound(s, self._local)) - removed


def names_needed(body: Sequence[ast.stmt], after: Names, local: Container[str]) -> Names:
    """Return the names that are to be bound before statements, for them and for what is live behind them."""
    return NameFlow((), (), local)._live_block(body, after, _Exits())


def certainly_bound(s: ast.stmt, local: Container[str]) -> Names:
    """Return the names that a statement binds whenever it ends."""
    if isinstance(s, (ast.If, ast.While, ast.For, ast.Try, ast.Match)):
        flow = NameFlow([s], (), local)
        after = flow._bound_after(s, _NONE, [])
        return _NONE if after is None else after
    if isinstance(s, ast.With):
        names = names_bound(_items(s), local)
        for inner in s.body:
            names = names | certainly_bound(inner, local)
        return names
    return names_bound(s, local)


def _items(s: ast.With) -> ast.AST:
    return ast.Module(body=[ast.Expr(item.optional_vars) for item in s.items if item.optional_vars],
                      type_ignores=[])  # fmt: skip


def _met(one: Names | None, other: Names | None) -> Names | None:
    if one is None or other is None:
        return one if other is None else other
    return one & other
