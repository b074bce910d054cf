"""Expressions that are the same for all iterations of a loop, moved before it: compilers leave reports in it.

Statements keep their order. Nothing moves out of a loop that reads what the kernel writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ..ir.loop_ir import (
    Apply,
    Array,
    Assign,
    Cast,
    Expr,
    If,
    Let,
    Load,
    Report,
    Select,
    Stmt,
    Store,
    Var,
    VectorAccess,
)


def hoisted(body: Sequence[Stmt], var: Var, written: Collection[str]) -> tuple[list[Stmt], list[Stmt]]:
    """Return what of a loop's body is done once, before it, and what is left.

    ``written`` are the buffers whose elements others may change meanwhile. The loop is run once at least.
    """
    loop = _Loop(var, {*written, *_stored(body)})
    while True:
        before, left = loop.split(body)
        if not loop.changed:
            return before, left


class _Loop:
    """A loop, and the names of which it is known that they do not stay the same."""

    def __init__(self, var: Var, written: Collection[str]) -> None:
        self.moving = {var.name}
        self.written = written
        self.changed = False

    def split(self, body: Sequence[Stmt]) -> tuple[list[Stmt], list[Stmt]]:
        """Return what moves and what is left, as far as is known; ``changed`` says that more got known."""
        self.changed = False
        before: list[Stmt] = []
        left: list[Stmt] = []
        read: set[str] = set()
        for s in body:
            if self.stays(s) and read.isdisjoint(_assigned([s])):
                before.append(s)
                continue
            left.append(s)
            read.update(_named(s))
            names = {s.var.name} if isinstance(s, Let) else {*_assigned([s])}
            self.changed = self.changed or not names <= self.moving
            self.moving |= names
        return before, left

    def stays(self, s: Stmt) -> bool:
        """Return whether a statement does the same in every iteration."""
        match s:
            case Let() | Assign():
                return s.var.name not in self.moving and not self.varies(s.value)
            case Report():
                return not any(map(self.varies, (s.code, s.value, s.limit)))
            case If():
                return not self.varies(s.condition) and all(map(self.stays, s.body))
            case _:
                return False

    def varies(self, e: Expr) -> bool:
        return any(
            x.name in self.moving if isinstance(x, Var) else isinstance(x, Load) and x.buffer in self.written
            for x in _parts(e)
        )


def _parts(e: Expr) -> Iterator[Expr]:
    """Yield an expression and its operands, theirs included."""
    yield e
    match e:
        case Load():
            yield from _parts(e.index)
        case Cast():
            yield from _parts(e.arg)
        case Apply():
            for a in e.args:
                yield from _parts(a)
        case Select():
            for a in (e.condition, e.then, e.other):
                yield from _parts(a)


def _assigned(body: Sequence[Stmt]) -> Iterator[str]:
    """Yield the names of mutable locals that statements give new values."""
    for s in body:
        if isinstance(s, Assign):
            yield s.var.name
        elif not isinstance(s, Let):
            yield from _assigned(getattr(s, "body", ()))


def _stored(body: Sequence[Stmt]) -> Iterator[str]:
    """Yield the buffers and arrays that statements write to."""
    for s in body:
        match s:
            case Array():
                yield s.name
            case Store():
                yield s.buffer
            case VectorAccess():
                yield from (s.array, s.buffer)
        yield from _stored(getattr(s, "body", ()))


def _named(s: Stmt) -> Iterator[str]:
    """Yield the names that a statement reads."""
    for name in ("value", "index", "condition", "start", "stop", "count", "code", "limit"):
        e = getattr(s, name, None)
        if isinstance(e, Apply | Cast | Load | Select | Var):
            yield from (x.name for x in _parts(e) if isinstance(x, Var))
    for inner in getattr(s, "body", ()):
        yield from _named(inner)
