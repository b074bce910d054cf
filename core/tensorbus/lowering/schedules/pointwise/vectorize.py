"""From the code for one element to code for several side by side, in the vectors of the language.

A compiler makes vectors of plain loops by itself, but seldom of loops that add up or call functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ....dtypes.definition import DType, bfloat16, bool_, float16, float32, float64, int64
from ...ir.builder import Builder
from ...ir.index_expr import add, const, multiply, quotient, subtract
from ...ir.loop_ir import (
    INDEX,
    Apply,
    Assign,
    Cast,
    Const,
    Expr,
    If,
    Let,
    Load,
    Report,
    Select,
    Stmt,
    Store,
    Var,
)
from ...ir.verify import COMPARES
from ...target import Target
from ..reduction.blocked_sum import BlockedState, Span

State = tuple[Expr, ...]
SINGLE = frozenset({float32})
VECTOR_DTYPES = SINGLE | {float64}
"""The dtypes that languages have vectors of."""
_AS_SINGLE = frozenset({float16, bfloat16, float32})
"""The dtypes whose vectors are ones of float32 where they are computed with at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """The vectors of a loop over a row: in which ops, of how many lanes, how many at a time.

    ``dtypes`` are those whose vectors the language has: they are loaded, computed and stored as they are.
    Up to ``remainder`` elements that are left of a row are no loop for vectors.
    """

    ops: frozenset[str] = frozenset()
    lanes: int = 1
    many: int = 1
    dtypes: frozenset[DType] = VECTOR_DTYPES
    remainder: int = 0


PLAIN = Vectors()
"""No vectors but those that compilers make."""


def map_vectors(target: Target, dtypes: Collection[DType]) -> Vectors:
    """Return the vectors in which what makes elements of these dtypes is written.

    No ops: the compiler makes the vectors.
    """
    if target.vector_ops:
        return Vectors(
            ops=target.vector_ops,
            lanes=max(target.lanes * 4 // max(4, *(d.itemsize for d in dtypes)), 1),
            remainder=target.heuristics.vector_remainder,
        )
    plain = all(d is float32 or f"round_{d}" in target.pointwise_vector_ops for d in dtypes)
    return Vectors(
        ops=target.pointwise_vector_ops if plain else frozenset(),
        lanes=target.pointwise_vector_lanes,
        dtypes=SINGLE,
        remainder=target.heuristics.vector_remainder,
    )


def row_vectors(target: Target, read: Collection[DType]) -> Vectors:
    """Return the vectors, in lanes of four bytes, in which rows of these dtypes are added up.

    Of no ops where compilers make them. Those were seen to convert halves one by one.
    """
    limits = target.heuristics
    if not target.vector_ops and any(f"load_{d}" in target.pointwise_vector_ops for d in read):
        return Vectors(
            ops=target.pointwise_vector_ops,
            lanes=target.pointwise_vector_lanes,
            many=limits.narrow_row_accumulators,
            dtypes=SINGLE,
            remainder=limits.vector_remainder,
        )
    return Vectors(ops=target.vector_ops, lanes=target.lanes, remainder=limits.vector_remainder)


def has_vectors(target: Target, dtypes: Collection[DType]) -> bool:
    """Return whether what makes elements of these dtypes may be written in vectors."""
    vectors = map_vectors(target, dtypes)
    return all(d in VECTOR_DTYPES or f"round_{d}" in vectors.ops for d in dtypes)


class _ScalarError(Exception):
    """The code has no form in vectors."""


@dataclass(slots=True)
class _Widener:
    var: Var
    lanes: int
    ops: frozenset[str]
    dtypes: frozenset[DType]
    indices: dict[str, Expr] = field(default_factory=dict)
    vectors: dict[str, Var] = field(default_factory=dict)
    conditions: dict[str, Expr] = field(default_factory=dict)
    own: set[str] = field(default_factory=set)

    def statement(self, s: Stmt) -> Stmt | None:
        """Return the wide form of a statement, or None where it only names a position."""
        if self.stays(s):
            return s
        if isinstance(s, Let) and not s.mutable:
            place = _as_place(s.value)
            if place.dtype is INDEX:
                self.indices[s.var.name] = place
                return None
            if s.var.dtype is bool_:  # masks have no type of their own: they are written where they are used
                self.conditions[s.var.name] = s.value
                return None
            wide = replace(s.var, lanes=self.lanes)
            value = self.value(s.value)
            self.vectors[s.var.name] = wide
            return Let(wide, value)
        if isinstance(s, Store) and s.count is None and not s.combine:
            return Store(s.buffer, self.place(s.index), self.stored(s.value), nontemporal=s.nontemporal)
        raise _ScalarError

    def stays(self, s: Stmt) -> bool:
        """Return whether a statement is the same for all elements, and may be run once for some of them."""
        match s:
            case Let():
                if s.mutable:
                    self.own.add(s.var.name)
                return not self.varies(s.value)
            case Assign():  # what is carried from element to element is not the same for all
                return s.var.name in self.own and not self.varies(s.value)
            case Report():
                return not any(self.varies(e) for e in (s.code, s.value, s.limit))
            case If():
                return not self.varies(s.condition) and all(self.stays(x) for x in s.body)
            case _:
                return False

    def varies(self, e: Expr) -> bool:
        match e:
            case Const():
                return False
            case Var():
                known = (self.indices, self.vectors, self.conditions)
                return e.name == self.var.name or any(e.name in names for names in known)
            case Load():
                return self.varies(e.index)
            case Cast():
                return self.varies(e.arg)
            case Apply():
                return any(self.varies(a) for a in e.args)
            case Select():
                return self.varies(e.condition) or self.varies(e.then) or self.varies(e.other)

    def pace(self, e: Expr) -> int:
        """Return by how much a position grows with each element: 0 or 1."""
        if not self.varies(e):
            return 0
        match e:
            case Var():
                return 1 if e.name == self.var.name else self.pace(self.indices[e.name])
            case Apply(op="add"):
                pace = sum(self.pace(a) for a in e.args)
            case Apply(op="subtract", args=(a, b)) if not self.varies(b):
                pace = self.pace(a)
            case _:
                raise _ScalarError
        if pace > 1:
            raise _ScalarError
        return pace

    def place(self, e: Expr) -> Expr:
        """Return a position that grows by 1 with each element, for the first of them."""
        if self.pace(e) != 1:
            raise _ScalarError
        return self.inline(e)

    def inline(self, e: Expr) -> Expr:
        match e:
            case Var() if e.name in self.indices:
                return self.inline(self.indices[e.name])
            case Apply():
                return replace(e, args=tuple(self.inline(a) for a in e.args))
            case _:
                return e

    def stored(self, e: Expr) -> Expr:
        """Return a value to store: it may be narrowed, which the store does."""
        if isinstance(e, Cast) and e.arg.dtype is float32 and f"store_{e.dtype}" in self.ops:
            return Cast(self.value(e.arg), e.dtype, self.lanes)
        return self.value(e)

    def value(self, e: Expr) -> Expr:
        if isinstance(e, Cast) and e.dtype is float32 and self.varies(e) and self.loads(e.arg.dtype):
            return Cast(self.value(e.arg), float32, self.lanes)
        other = e.dtype not in self.dtypes
        if other and not self.rounds(e.dtype) and not (isinstance(e, Load | Var) and self.loads(e.dtype)):
            raise _ScalarError
        if isinstance(e, Const):
            return replace(e, lanes=self.lanes)
        if not self.varies(e):
            return Cast(e, e.dtype, self.lanes)
        match e:
            case Var():
                return self.vectors[e.name]
            case Load():
                return Load(e.buffer, self.place(e.index), e.dtype, self.lanes)
            case Cast() if e.arg.dtype in _AS_SINGLE and (self.rounds(e.dtype) or self.rounds(e.arg.dtype)):
                return Cast(self.value(e.arg), e.dtype, self.lanes)
            case Apply() if e.op in self.ops:
                return Apply(e.op, tuple(self.value(a) for a in e.args), e.dtype, self.lanes)
            case Select() if not self.varies(e.condition):
                return Select(e.condition, self.value(e.then), self.value(e.other), e.dtype, self.lanes)
            case Select() if "select" in self.ops and not (_loads(e.then) or _loads(e.other)):
                condition = self.mask(e.condition, e.dtype)
                return Select(condition, self.value(e.then), self.value(e.other), e.dtype, self.lanes)
            case _:
                raise _ScalarError

    def loads(self, dtype: DType) -> bool:
        """Return whether vectors of a narrow dtype can be loaded, as ones of float32."""
        return f"load_{dtype}" in self.ops

    def rounds(self, dtype: DType) -> bool:
        """Return whether vectors of a narrow dtype are computed with, as ones of float32."""
        return f"round_{dtype}" in self.ops

    def mask(self, e: Expr, dtype: DType) -> Expr:
        """Return a condition for each lane, of comparisons of ``dtype``: a mask is as wide as these."""
        match e:
            case Var() if e.name in self.conditions:
                return self.mask(self.conditions[e.name], dtype)
            case Apply(op="logical_and" | "logical_or" | "logical_not"):
                return Apply(e.op, tuple(self.mask(a, dtype) for a in e.args), bool_, self.lanes)
            case Apply() if e.op in COMPARES and e.op != "signbit" and (
                e.args[0].dtype is dtype or {e.args[0].dtype, dtype} <= _AS_SINGLE
            ):  # fmt: skip
                return Apply(e.op, tuple(self.value(a) for a in e.args), bool_, self.lanes)
            case Apply(op=op, args=(a, b)) if op in _TURNED and "ramp" in self.ops and dtype in _AS_SINGLE:
                if self.varies(b):
                    op, a, b = _TURNED[op], b, a
                return self.places(op, a, b)
            case _:
                raise _ScalarError

    def places(self, op: str, a: Expr, b: Expr) -> Expr:
        """Return whether a position ``a`` that grows by the element is as ``op`` says to one that does not.

        How far it is away, cut off where that is beyond all lanes, is exact in floats, which masks are of.
        """
        first, other = (
            self.inline(e) if isinstance(e, Var) and e.name in self.indices else _as_place(e) for e in (a, b)
        )
        kinds = {e.dtype for e in (first, other)}
        if self.varies(b) or not kinds <= {INDEX, int64} or first.dtype is not INDEX or self.pace(first) != 1:
            raise _ScalarError
        start = self.inline(first)
        end = other if other.dtype is INDEX else Cast(other, INDEX)
        past = Apply("less_equal", (add(start, const(self.lanes)), end), bool_)
        near = Select(past, const(self.lanes), subtract(end, start), INDEX)
        far = Select(Apply("less", (end, start), bool_), const(-1), near, INDEX)
        lane = Apply("ramp", (), float32, self.lanes)
        there = Cast(Cast(far, float32), float32, self.lanes)
        return Apply(op, (lane, there), bool_, self.lanes)


_TURNED = {
    "equal": "equal", "not_equal": "not_equal", "less": "greater", "greater": "less",
    "less_equal": "greater_equal", "greater_equal": "less_equal",
}  # fmt: skip
"""Comparisons, and what they are with their operands the other way round."""


def _as_place(e: Expr) -> Expr:
    """Return the position that an integer is cast from, where it is one; else the expression."""
    return e.arg if isinstance(e, Cast) and e.dtype is int64 and e.arg.dtype is INDEX else e


def _loads(e: Expr) -> bool:
    """Return whether an expression loads: where only some lanes choose it, the others have nothing there."""
    match e:
        case Load():
            return True
        case Cast():
            return _loads(e.arg)
        case Apply():
            return any(_loads(a) for a in e.args)
        case Select():
            return _loads(e.condition) or _loads(e.then) or _loads(e.other)
        case _:
            return False


def widen(
    body: Sequence[Stmt], results: State, var: Var, vectors: Vectors
) -> tuple[tuple[Stmt, ...], State] | None:
    """Return ``body`` and ``results`` for a vector of elements from ``var`` on; None where that cannot be."""
    widener = _Widener(var, vectors.lanes, vectors.ops, vectors.dtypes)
    try:
        statements = tuple(w for w in map(widener.statement, body) if w is not None)
        return statements, tuple(widener.value(e) for e in results)
    except _ScalarError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorLoop:
    """A loop over a row in ``vectors``, of which ``even`` elements fill whole ones.

    ``combine(b, before, new)`` adds one state to another, scalar or wide; ``emit(k)`` writes what one element
    needs and returns its state. ``ahead(k, lanes)`` writes what each step has done before. Each vector of a
    step has accumulators of its own.
    """

    vectors: Vectors
    emit: Callable[[Expr], State]
    combine: Callable[[Builder, State, State], State] = lambda b, before, new: ()
    ahead: Callable[[Expr, int], None] | None = None

    def loop(self, b: Builder, start: Expr, stop: Expr) -> bool:
        """Emit a loop that carries nothing; False, and nothing, where it cannot be."""
        return self.reduce(BlockedState.plain(b, Accumulators((), ())), Span(start, stop, 0))

    def reduce(self, sums: BlockedState[Accumulators], span: Span) -> bool:
        """Emit the loop into accumulators; False, and nothing, where it cannot be."""
        b, lanes, many = sums.b, self.vectors.lanes, self.vectors.many
        if not self.vectors.ops:  # the language has no vectors: its compiler makes them
            return False
        works = True

        def step(first: Expr) -> None:
            nonlocal works
            assert isinstance(first, Var)
            if self.ahead is not None:
                self.ahead(first, lanes * many)
            wide = sums.state.wide
            own = len(wide) // many
            for j in range(many):
                var = Var(b.fresh("k"), INDEX) if j else first
                with b.inner() as plain:
                    results = self.emit(var)
                widened = widen(plain, results, var, self.vectors)
                if widened is None:
                    works = False
                    return
                if j:
                    b.emit(Let(var, add(first, const(j * lanes))))
                b.block.extend(widened[0])
                self._assign(b, wide[j * own : (j + 1) * own], widened[1])

        count = const(lanes * many)
        start, stop, most = span
        with b.inner() as body:
            even = b.let(add(start, multiply(quotient(subtract(stop, start), count), count)), "even")
            sums.loop(Span(start, even, most), step, step=lanes * many)
            if not works:
                return False
            with b.loop(even, stop, kind="rest" if lanes * many <= self.vectors.remainder else "serial") as k:
                self._assign(b, sums.state.rest, self.emit(k))
        b.block.extend(body)
        return True

    def _assign(self, b: Builder, to: Sequence[Var], new: State) -> None:
        for var, e in zip(to, self.combine(b, tuple(to), new) if to else (), strict=True):
            b.emit(Assign(var, e))


def reduce_lanes(b: Builder, wide: Var, rest: Var, combine: Callable[[Builder, State, State], State]) -> Expr:
    """Return what the lanes of ``wide`` come to, on top of ``rest``."""
    name = b.array(wide.dtype, wide.lanes)

    def lane(k: Expr) -> State:
        return (Load(name, k, wide.dtype),)

    b.store(name, const(0), wide)
    tree_reduce_lanes(b, wide.lanes, lambda k, j: b.store(name, k, combine(b, lane(k), lane(j))[0]))
    b.assign(rest, combine(b, (rest,), lane(const(0)))[0])
    return rest


def tree_reduce_lanes(b: Builder, lanes: int, join: Callable[[Expr, Expr], None]) -> None:
    """Emit what puts all lanes together in the first: one half onto the other, so that few wait for others.

    ``join(k, j)`` writes how lane ``k`` gets what lane ``j``, behind it, has come to.
    """
    while lanes > 1:
        half = (lanes + 1) // 2
        with b.loop(const(0), const(lanes - half), kind="unroll", prefix="u") as u:
            join(u, add(u, const(half)))
        lanes = half


class Accumulators(NamedTuple):
    """``wide`` accumulators, those of the first vector of a step, then those of the next; ``rest`` scalar."""

    wide: tuple[Var, ...]
    rest: tuple[Var, ...]


def accumulators(b: Builder, start: Sequence[Const], lanes: int, many: int = 1) -> Accumulators:
    """Return new accumulators of a state that begins with ``start``, for ``many`` vectors a step."""
    wide = tuple([b.let(replace(e, lanes=lanes), "wide", mutable=True) for e in (*start,) * many])
    return Accumulators(wide, tuple([b.let(e, "acc", mutable=True) for e in start]))
