"""Neighbouring elements in one access: a work-item makes a vector of them, loaded and stored as a whole.

The body of an unrolled loop over a vector is written element by element. What it reads or writes at ``base +
u`` goes through an array of the work-item's own, which is filled before the loop and emptied behind it, where
``base`` is known to be a multiple of what the device's widest access asks for. All else stays as it was: a
vector is never wrong, at worst slow. Positions and conditions that all of a vector has are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ....dtypes.definition import DType, bool_
from ....tracing.sym_int import known_divisor
from ...ir import index_expr as ix
from ...ir.builder import Builder, RuntimeArg
from ...ir.index_expr import ZERO, const
from ...ir.loop_ir import (
    INDEX,
    Apply,
    Array,
    Assign,
    Cast,
    Const,
    Expr,
    For,
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
from ...target import Target

_DIVISOR = 16
_LOGICAL = frozenset({"logical_and", "logical_or", "logical_not"})


def vector_width(target: Target, length: int, dtypes: Sequence[DType]) -> int:
    """Return how many elements of rows of ``length`` a work-item makes at once; 1: no vectors.

    An open length counts by what divides it whatever it is, so that one program serves odd ones as well.
    """
    limits = target.heuristics
    if target.row_per_task or not target.vector_bytes or not dtypes:
        return 1
    lanes = min(limits.access_max_lanes, target.vector_bytes // min(d.itemsize for d in dtypes))
    divisor = known_divisor(length)
    while lanes > 1 and divisor % lanes:
        lanes //= 2
    return max(lanes, 1)


def emit_vector(b: Builder, lanes: int, *emits: Callable[[Expr], None]) -> None:
    """Emit the loop over a vector; ``emit(u)`` writes element ``u`` of it.

    Of several vectors all is loaded before the first loop, and stored behind the last: no load waits for a
    store that may be to its place.
    """
    bodies = []
    for emit in emits:
        u = Var(b.fresh("u"), INDEX)
        with b.inner() as body:
            emit(u)
        packing = _Packing(b, u, lanes)
        bodies.append((packing, packing.packed(body)))
    for packing, _ in bodies:
        b.block.extend(packing.before)
    for packing, inside in bodies:
        if inside:
            b.emit(For(packing.u, ZERO, const(lanes), inside, 1, "unroll"))
    for packing, _ in bodies:
        b.block.extend(packing.after)


@dataclass(slots=True)
class _Packing:
    b: Builder
    u: Var
    lanes: int
    places: dict[str, tuple[Expr, int]] = field(default_factory=dict)
    """What positions of the body are: a base that all of the vector has, and 1 where ``u`` is added."""
    inner: set[str] = field(default_factory=set)
    """Other names of the body, whose values may differ within the vector."""
    written: set[str] = field(default_factory=set)
    loaded: dict[tuple[str, Expr, Expr | None], str] = field(default_factory=dict)
    before: list[Stmt] = field(default_factory=list)
    after: list[Stmt] = field(default_factory=list)
    guards: list[Expr] = field(default_factory=list)

    def packed(self, body: Sequence[Stmt]) -> tuple[Stmt, ...]:
        """Return the body as that of a loop; note what is done once, before it and behind it."""
        self.written = _stored(body)
        return tuple(new for s in body if (new := self.statement(s)) is not None)

    def statement(self, s: Stmt) -> Stmt | None:
        match s:
            case Let() if not s.mutable:
                return self.let(s)
            case Let():
                self.inner.add(s.var.name)
                return replace(s, value=self.rewritten(s.value))
            case Assign():
                return replace(s, value=self.rewritten(s.value))
            case Store():
                return self.store(s)
            case Report() if all(self.uniform(e) is not None for e in (s.code, s.value, s.limit)):
                code, value, limit = (self.uniform(e) or e for e in (s.code, s.value, s.limit))
                self.before.append(replace(s, code=code, value=value, limit=limit))
                return None
            case If() | For():
                self.inner |= _named(s.body)
                return s
            case _:
                return s

    def let(self, s: Let) -> Stmt | None:
        value = self.uniform(s.value)
        if value is not None:
            self.before.append(replace(s, value=value))
            return None
        if s.var.dtype is INDEX and (place := self.place(s.value)) is not None:
            base = self.once(place[0])
            self.places[s.var.name] = base, place[1]
            return replace(s, value=ix.add(base, self.u) if place[1] else base)
        self.inner.add(s.var.name)
        return replace(s, value=self.rewritten(s.value))

    def once(self, e: Expr) -> Expr:
        """Return a name for what is computed once, before the loop."""
        if isinstance(e, Var | Const):
            return e
        var = Var(self.b.fresh("base"), INDEX)
        self.before.append(Let(var, e))
        self.b.lets[var.name] = e
        return var

    def store(self, s: Store) -> Stmt:
        value = self.rewritten(s.value)
        place = (
            self.place(s.index) if s.buffer in self.b.buffers and s.count is None and not s.combine else None
        )
        dtype = s.value.dtype
        if place is None or not place[1] or not self.aligned(place[0], dtype):
            return replace(s, value=value)
        name = self.b.fresh("vector")
        self.before.append(Array(name, dtype, self.lanes, "vector"))
        self.after.append(VectorAccess(name, s.buffer, self.once(place[0]), self.lanes, writes=True))
        return Store(name, self.u, value)

    def rewritten(self, e: Expr) -> Expr:
        """Return an expression of the body with its loads from vectors, and its conditions known before."""
        match e:
            case Load():
                return self.load(e)
            case Cast():
                return replace(e, arg=self.rewritten(e.arg))
            case Apply():
                return replace(e, args=tuple(self.rewritten(a) for a in e.args))
            case Select():
                return self.select(e)
            case _:
                return e

    def select(self, e: Select) -> Expr:
        known = self.uniform(e.condition)
        if known is None:
            return replace(
                e, condition=self.rewritten(e.condition), then=self.plain(e.then), other=self.plain(e.other)
            )
        if not isinstance(known, Var | Const):
            var = Var(self.b.fresh("here"), bool_)
            self.before.append(Let(var, known))
            known = var
        self.guards.append(known)
        then = self.rewritten(e.then)
        self.guards[-1] = Apply("logical_not", (known,), bool_)
        other = self.rewritten(e.other)
        self.guards.pop()
        return replace(e, condition=known, then=then, other=other)

    def plain(self, e: Expr) -> Expr:
        """Return what is evaluated for some elements of the vector only, as it was."""
        return e

    def load(self, e: Load) -> Expr:
        place = self.place(e.index) if e.buffer in self.b.buffers and e.lanes == 1 else None
        if place is None:
            return e
        base, adds = self.once(place[0]), place[1]
        if e.buffer in self.written and not adds:
            return e
        if not adds:
            return replace(e, index=base)
        if not self.aligned(base, e.dtype):
            return replace(e, index=ix.add(base, self.u))
        guard = ix.both(self.guards) if self.guards else None
        key = e.buffer, base, guard
        name = self.loaded.get(key)
        if name is None:
            name = self.loaded[key] = self.b.fresh("vector")
            self.before.append(Array(name, e.dtype, self.lanes, "vector"))
            access = VectorAccess(name, e.buffer, base, self.lanes)
            self.before.append(access if guard is None else If(guard, (access,)))
        return Load(name, self.u, e.dtype)

    def aligned(self, base: Expr, dtype: DType) -> bool:
        whole = min(_DIVISOR, self.lanes * dtype.itemsize)
        return _divisor(self.b, base) * dtype.itemsize % whole == 0

    def uniform(self, e: Expr) -> Expr | None:
        """Return what an expression is for all of the vector; None where it may differ."""
        match e:
            case Const():
                return e
            case Var():
                if e.name == self.u.name or e.name in self.inner or e.name in self.b.changing:
                    return None
                place = self.places.get(e.name)
                return e if place is None else None if place[1] else place[0]
            case Load():
                index = self.uniform(e.index)
                fixed = index is not None and e.buffer in self.b.buffers and e.buffer not in self.written
                return replace(e, index=index) if fixed and index is not None else None
            case Cast():
                arg = self.uniform(e.arg)
                return None if arg is None else replace(e, arg=arg)
            case Select():
                condition, then, other = (self.uniform(x) for x in (e.condition, e.then, e.other))
                if condition is None or then is None or other is None:
                    return None
                return Select(condition, then, other, e.dtype)
        args = [self.uniform(a) for a in e.args]
        if all(a is not None for a in args):
            return replace(e, args=tuple(a for a in args if a is not None))
        if e.dtype is INDEX:
            place = self.place(e)
            return place[0] if place is not None and not place[1] else None
        if e.op in ("less", "greater_equal") and e.args[0].dtype is INDEX:
            # A multiple of the vector's length: all of the vector is on one side of it.
            first, limit = self.place(e.args[0]), args[1]
            if first is not None and limit is not None and self.whole(first[0]) and self.whole(limit):
                return replace(e, args=(first[0], limit))
        return None

    def place(self, e: Expr) -> tuple[Expr, int] | None:
        """Return a position as a base that all of the vector has, and 1 where ``u`` is added to it."""
        match e:
            case Var():
                if e.name == self.u.name:
                    return ZERO, 1
                if e.name in self.places:
                    return self.places[e.name]
                return None if e.name in self.inner or e.name in self.b.changing else (e, 0)
            case Const():
                return e, 0
            case Apply(op="add" | "subtract" | "multiply" | "quotient" | "modulo"):
                left, right = (self.place(a) for a in e.args)
                return None if left is None or right is None else self.combined(e.op, left, right)
            case _:
                place = self.uniform(e)
                return None if place is None else (place, 0)

    def combined(self, op: str, a: tuple[Expr, int], x: tuple[Expr, int]) -> tuple[Expr, int] | None:
        if op == "add" and a[1] + x[1] < 2:
            return ix.add(a[0], x[0]), a[1] + x[1]
        if op == "subtract" and not x[1]:
            return ix.subtract(a[0], x[0]), a[1]
        if op == "multiply" and not (a[1] or x[1]):
            return ix.multiply(a[0], x[0]), 0
        if op in ("quotient", "modulo") and not x[1]:
            if a[1] and not (self.whole(a[0]) and self.whole(x[0])):
                return None
            combine = ix.quotient if op == "quotient" else ix.modulo
            return combine(a[0], x[0]), a[1] if op == "modulo" else 0
        return None

    def whole(self, e: Expr) -> bool:
        """Return whether a position is a multiple of the vector's length."""
        return _divisor(self.b, e) % self.lanes == 0


def _divisor(b: Builder, e: Expr) -> int:
    """Return a power of two, at most 16, that a position is known to be a multiple of."""
    match e:
        case Const():
            return _lowest(int(e.value.real))
        case Var():
            if e.name in b.lets:
                return _divisor(b, b.lets[e.name])
            value = b.params[e.name][1] if e.name in b.params else 1
            return 1 if isinstance(value, RuntimeArg) else _lowest(known_divisor(value.real))
        case Apply(op="multiply"):
            return min(_DIVISOR, _divisor(b, e.args[0]) * _divisor(b, e.args[1]))
        case Apply(op="add" | "subtract" | "modulo" | "minimum"):
            return min(_divisor(b, a) for a in e.args)
        case _:
            return 1


def _lowest(value: int) -> int:
    return min(_DIVISOR, value & -value) if value else _DIVISOR


def _stored(body: Sequence[Stmt]) -> set[str]:
    names: set[str] = set()
    for s in body:
        if isinstance(s, Store):
            names.add(s.buffer)
        elif isinstance(s, If | For):
            names |= _stored(s.body)
    return names


def _named(body: Sequence[Stmt]) -> set[str]:
    names: set[str] = set()
    for s in body:
        if isinstance(s, Let):
            names.add(s.var.name)
        elif isinstance(s, If | For):
            names |= _named(s.body)
    return names
