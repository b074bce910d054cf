"""What is carried along a reduction or a scan: how it starts, and how two parts become one."""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import NARROW, DType, bool_, float32, int64, integer_range
from . import index as ix
from .builder import Builder, literal
from .ir import Apply, Cast, Const, Expr, Select, Var

State = tuple[Expr, ...]
OPS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or",
       "all": "logical_and"}  # fmt: skip
"""The op that combines the states of a reduction, where it is one."""


def accumulator(dtype: DType) -> DType:
    """Return the dtype that values of ``dtype`` add up in."""
    return float32 if dtype in NARROW else dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Reducer:
    """What is carried along a reduction. ``dtypes`` are those of the state's parts."""

    op: str
    dtypes: tuple[DType, ...]

    @classmethod
    def of(cls, op: str, dtype: DType) -> Reducer:
        """Return the reducer of a prim over elements of ``dtype``."""
        kept = accumulator(dtype)
        return cls(op=op, dtypes=(kept, int64) if op in ("argmax", "argmin") else (kept,))

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
            case _:
                return (literal(0, d), literal(-1, int64))

    def least(self) -> Const:
        """Return the value that no element loses against, in the search for the largest or the smallest."""
        d, down = self.dtypes[0], self.op in ("max", "argmax")
        if d.is_floating:
            return literal(float("-inf" if down else "inf"), d)
        return literal(integer_range(d)[0 if down else 1] if d is not bool_ else 0, d)

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
    def finds(self) -> bool:
        """True where the result is a place."""
        return self.op in ("argmax", "argmin")

    def element(self, value: Expr, position: Expr) -> State:
        """Return the state that one element makes."""
        given = Cast(value, self.dtypes[0]) if value.dtype is not self.dtypes[0] else value
        return (given,) if len(self.dtypes) == 1 else (given, Cast(position, int64))

    def combine(self, b: Builder, a: State, x: State) -> State:
        """Return the state of both, those of ``a`` coming first."""
        d = self.dtypes[0]
        op = OPS.get(self.op)
        if op is not None:
            return (Apply(op, (a[0], x[0]), d, a[0].lanes),)
        if self.op == "logsumexp":
            return (_logaddexp(b, a[0], x[0]),)
        best, new = (e if isinstance(e, Var) else b.let(e) for e in (a[0], x[0]))
        beats: Expr = Apply("greater" if self.op == "argmax" else "less", (new, best), bool_)
        same: Expr = Apply("equal", (new, best), bool_)
        if d.is_floating:
            nan, was = (Apply("isnan", (e,), bool_) for e in (new, best))
            both_nan, only = ix.both([nan, was]), ix.both([nan, Apply("logical_not", (was,), bool_)])
            beats = Apply("logical_or", (beats, only), bool_)
            same = Apply("logical_or", (same, both_nan), bool_)
        earlier = ix.both([same, Apply("less", (x[1], a[1]), bool_)])
        none = Apply("less", (a[1], literal(0, int64)), bool_)
        valid = Apply("greater_equal", (x[1], literal(0, int64)), bool_)
        wins = Apply("logical_or", (none, Apply("logical_or", (beats, earlier), bool_)), bool_)
        take = b.let(ix.both([valid, wins]), "take")
        return (Select(take, new, best, d), Select(take, x[1], a[1], int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """Reductions that are walked together: the state is that of each, one after the other."""

    parts: tuple[Reducer, ...]

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the state's parts."""
        return tuple(d for part in self.parts for d in part.dtypes)

    @property
    def finds(self) -> bool:
        """False: places are searched for alone."""
        return False

    def start(self) -> State:
        """Return the state before any element."""
        return tuple(e for part in self.parts for e in part.start())

    def combine(self, b: Builder, a: State, x: State) -> State:
        """Return the state of both, those of ``a`` coming first."""
        result: State = ()
        for part in self.parts:
            n, at = len(part.dtypes), len(result)
            result += part.combine(b, a[at : at + n], x[at : at + n])
        return result


def _logaddexp(b: Builder, x: Expr, y: Expr) -> Expr:
    """Return ``log(exp(x) + exp(y))``; where both are the same infinity, that one."""
    x, y = (e if isinstance(e, Var) else b.let(e) for e in (x, y))
    d = x.dtype
    top = b.let(Apply("maximum", (x, y), d), "top")
    far = Apply("negative", (Apply("abs", (Apply("subtract", (x, y), d),), d),), d)
    total = Apply("add", (top, Apply("log1p", (Apply("exp", (far,), d),), d)), d)
    endless = ix.both([Apply("equal", (x, y), bool_), Apply("isinf", (x,), bool_)])
    return Select(endless, x, total, d)
