"""The accumulator of a reduction or a scan: how it starts, and how two parts become one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....dtypes.definition import DType, bool_, int32, int64, integer_range
from ...ir import index_expr as ix
from ...ir.builder import Builder, literal
from ...ir.loop_ir import Apply, Cast, Const, Expr, Select, Var
from ...op_sets import FINDS, accumulator

State = tuple[Expr, ...]
OPS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or",
       "all": "logical_and"}  # fmt: skip
"""The op that combines the states of a reduction, where it is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducer:
    """The accumulator of a reduction. ``dtypes`` are those of the state's parts."""

    op: str
    dtypes: tuple[DType, ...]

    @classmethod
    def of(cls, op: str, dtype: DType) -> Reducer:
        """Return the reducer of a prim over elements of ``dtype``."""
        wide = accumulator(dtype)
        return cls(op=op, dtypes=(wide, int64) if op in FINDS else (wide,))

    def over(self, length: int) -> Reducer:
        """Return the reducer of rows of ``length``, whose places have no more bits than that takes."""
        return (
            replace(self, dtypes=(self.dtypes[0], int32))
            if self.is_arg_reduction and length < 1 << 31
            else self
        )

    def start(self) -> State:
        """Return the state before any element."""
        d = self.dtypes[0]
        match self.op:
            case "sum":
                return (literal(0, d),)
            case "logsumexp":
                return (literal(float("-inf"), d),)
            case "prod":
                return (literal(1, d),)
            case "any" | "all":
                return (literal(self.op == "all", d),)
            case "max" | "min":
                return (self.least(),)
            case _:  # no element loses against it, or is behind it
                place = self.dtypes[1]
                return (self.least(), literal(integer_range(place)[1], place))

    def first(self, begin: Expr) -> State:
        """Return the state before the elements from place ``begin`` on, which come in order."""
        return (self.least(), Cast(begin, self.dtypes[1])) if self.is_arg_reduction else self.start()

    def least(self) -> Const:
        """Return the value that no element loses against, in the search for the largest or the smallest."""
        d, down = self.dtypes[0], self.op in ("max", "argmax")
        if d.is_floating:
            return literal(float("-inf" if down else "inf"), d)
        return literal(integer_range(d)[0 if down else 1] if d is not bool_ else not down, d)

    def beats(self, new: Expr, best: Expr) -> Expr:
        """Return whether the element ``new`` of an argmax or argmin takes the place of an earlier one."""
        down, lanes = self.op == "argmax", new.lanes
        if self.dtypes[0].is_floating:  # NaN beats all but NaN
            worse = Apply("less_equal" if down else "greater_equal", (new, best), bool_, lanes)
            plain = Apply("equal", (best, best), bool_, lanes)
            better = Apply("logical_not", (worse,), bool_, lanes)
            return Apply("logical_and", (better, plain), bool_, lanes)
        return Apply("greater" if down else "less", (new, best), bool_, lanes)

    @property
    def is_arg_reduction(self) -> bool:
        """True where the result is a place."""
        return self.op in FINDS

    def result(self, state: State) -> State:
        """Return the part of the state that is the result."""
        return state[-1:]

    def element(self, value: Expr, position: Expr) -> State:
        """Return the state that one element makes."""
        element = Cast(value, self.dtypes[0]) if value.dtype is not self.dtypes[0] else value
        return (element,) if len(self.dtypes) == 1 else (element, Cast(position, self.dtypes[1]))

    def combine(self, b: Builder, a: State, x: State) -> State:
        """Return the state of both, those of ``a`` coming first."""
        d = self.dtypes[0]
        op = OPS.get(self.op)
        if op is not None:
            return (Apply(op, (a[0], x[0]), d, a[0].lanes),)
        if self.op == "logsumexp":
            return (_logaddexp(b, a[0], x[0]),)
        best, new = (e if isinstance(e, Var) else b.let(e) for e in (a[0], x[0]))
        same: Expr = Apply("equal", (new, best), bool_)
        if d.is_floating:
            both_nan = ix.both([Apply("isnan", (e,), bool_) for e in (new, best)])
            same = Apply("logical_or", (same, both_nan), bool_)
        earlier = ix.both([same, Apply("less", (x[1], a[1]), bool_)])
        take = b.let(Apply("logical_or", (self.beats(new, best), earlier), bool_), "take")
        return (Select(take, new, best, d), Select(take, x[1], a[1], self.dtypes[1]))

    def step(self, b: Builder, a: State, x: State) -> State:
        """Return the state of both where all of ``x`` is behind ``a``, which wins among equals unasked."""
        if not self.is_arg_reduction:
            return self.combine(b, a, x)
        new = x[0] if isinstance(x[0], Var) else b.let(x[0], "new")
        wins = b.let(self.beats(new, a[0]), "wins")
        return Select(wins, new, a[0], new.dtype), Select(wins, x[1], a[1], self.dtypes[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductReducer:
    """Reductions that share a loop: the state is that of each, one after the other."""

    parts: tuple[Reducer, ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the state's parts."""
        return tuple(d for part in self.parts for d in part.dtypes)

    @property
    def is_arg_reduction(self) -> bool:
        """False: places are searched for alone."""
        return False

    def start(self) -> State:
        """Return the state before any element."""
        return tuple(e for part in self.parts for e in part.start())

    def first(self, begin: Expr) -> State:
        """Return the state before the elements from place ``begin`` on, which come in order."""
        return tuple(e for part in self.parts for e in part.first(begin))

    def result(self, state: State) -> State:
        """Return the parts of the state that are the results."""
        return tuple(e for part, own in self._each(state) for e in part.result(own))

    def combine(self, b: Builder, a: State, x: State) -> State:
        """Return the state of both, those of ``a`` coming first."""
        both = zip(self._each(a), self._each(x), strict=True)
        return tuple(e for (part, own), (_, new) in both for e in part.combine(b, own, new))

    def step(self, b: Builder, a: State, x: State) -> State:
        """Return the state of both where all of ``x`` is behind ``a``."""
        both = zip(self._each(a), self._each(x), strict=True)
        return tuple(e for (part, own), (_, new) in both for e in part.step(b, own, new))

    def _each(self, state: State) -> Iterator[tuple[Reducer, State]]:
        """Yield the parts, each with its own state."""
        at = 0
        for part in self.parts:
            yield part, state[at : at + len(part.dtypes)]
            at += len(part.dtypes)


def _logaddexp(b: Builder, x: Expr, y: Expr) -> Expr:
    """Return ``log(exp(x) + exp(y))``; where both are the same infinity, that one."""
    x, y = (e if isinstance(e, Var) else b.let(e) for e in (x, y))
    d = x.dtype
    top = b.let(Apply("maximum", (x, y), d), "top")
    far = Apply("negative", (Apply("abs", (Apply("subtract", (x, y), d),), d),), d)
    total = Apply("add", (top, Apply("log1p", (Apply("exp", (far,), d),), d)), d)
    endless = ix.both([Apply("equal", (x, y), bool_), Apply("isinf", (x,), bool_)])
    return Select(endless, x, total, d)
