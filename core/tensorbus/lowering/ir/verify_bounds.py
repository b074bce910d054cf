"""Every load and store of a launch stays within its buffer, as far as indices can be worked out.

Lengths and strides are known when a kernel is launched. What they make of an index is bounded by the loops
around it and by the conditions that it stands behind. So are numbers that the caller gave. Of those that a
program computes itself, ranks and counts, nothing is known, and nothing is said here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import gcd, inf
from typing import Final

from ...dtypes.definition import DType, bool_
from .affine_bounds import Facts, Knowledge, Sum
from .builder import Launch, RuntimeArg
from .loop_ir import (
    INDEX,
    Apply,
    Array,
    Assign,
    Cast,
    Const,
    CountWorkgroup,
    Expr,
    For,
    If,
    LastTaskEpilogue,
    Let,
    Load,
    Select,
    Stmt,
    Store,
    Var,
    VectorAccess,
)
from .printer import expr_text
from .verify import IRError

Range = tuple[float, float]
"""The least and the largest of some numbers; the first is larger where there are none."""
NONE: Final[Range] = (inf, -inf)
_CONDITIONS: Final = frozenset("less less_equal greater greater_equal equal".split())


def verify_bounds(launch: Launch, extents: Sequence[Range], inputs: Collection[str]) -> None:
    """Raise ``IRError`` naming an index that may lie outside of its buffer.

    ``extents`` are the least and the largest index of each buffer; ``inputs`` names
    those that the caller filled.
    """
    _Checker(launch, extents, inputs).block(launch.kernel.body)


class _Checker:
    def __init__(self, launch: Launch, extents: Sequence[Range], inputs: Collection[str]) -> None:
        self.launch = launch
        names = [b.name for b in launch.kernel.buffers]
        self.known = Knowledge()
        self.extents: dict[str, Range] = dict(zip(names, extents, strict=True))
        self.read_only = {b.name for b in launch.kernel.buffers if b.name in inputs and not b.writes}
        self.values: dict[str, Sum] = {}
        self.facts: dict[str, tuple[Facts, Facts]] = {}
        """What holds where a local is true, and where it is not."""
        for param, value in zip(launch.kernel.params, launch.values, strict=True):
            if not _is_whole(param.dtype):
                continue
            if not isinstance(value, RuntimeArg):
                self.values[param.name] = Sum((), int(value.real))
            elif value.what == "offset":  # of the operand itself, which ``extents`` do not count either
                self.values[param.name] = Sum((), value.plus)

    def block(self, body: Sequence[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        match s:
            case Let() | Assign():
                self.loads(s.value)
                if isinstance(s, Let) and s.var.dtype is bool_ and s.var.lanes == 1 and not s.mutable:
                    self.facts[s.var.name] = self.condition(s.value)
                elif _is_whole(s.var.dtype) and s.var.lanes == 1:
                    self.values[s.var.name] = self.value(s.value)
            case Array():
                self.extents[s.name] = (0, s.size - 1)
            case Store():
                self.loads(s.index)
                self.loads(s.value)
                self.store(s)
            case If():
                self.loads(s.condition)
                with self.known.assuming(self.condition(s.condition)[0]) as holds:
                    if holds:
                        self.block(s.body)
                self.forget(s.body)
            case For():
                self.loop(s)
            case VectorAccess():
                self.loads(s.index)
                self.within(s.buffer, s.index, Sum((), s.lanes))
            case LastTaskEpilogue():
                self.block(s.body)
            case CountWorkgroup():
                self.loads(s.index)
                self.within(s.counter, s.index, Sum((), 1))
            case _:
                pass

    def loop(self, s: For) -> None:
        self.loads(s.start)
        self.loads(s.stop)
        start, stop = self.value(s.start), self.value(s.stop)
        high = self.known.most(stop.plus(start, -1))
        if high <= 0:
            return
        self.forget(s.body)
        turn = self.known.unknown(0, (high - 1) // s.step)
        at = start.plus(turn, s.step)
        self.values[s.var.name] = at
        inside = at.plus(stop, -1).plus(Sum((), 1))
        with self.known.assuming((inside, start.plus(at, -1))) as turns:
            if turns:
                self.block(s.body)
        self.forget(s.body)

    def forget(self, body: Sequence[Stmt]) -> None:
        """Know nothing of the locals that ``body`` may have changed."""
        for s in body:
            if isinstance(s, Assign) and s.var.name in self.values:
                self.values[s.var.name] = self.known.of_data(*_limits(s.var.dtype))
            elif isinstance(s, If | For | LastTaskEpilogue):
                self.forget(s.body)

    def store(self, s: Store) -> None:
        lanes = Sum((), s.value.lanes)
        if s.count is not None:
            lanes = self.known.smaller(lanes, self.value(s.count))
        self.within(s.buffer, s.index, lanes)

    def loads(self, e: Expr) -> None:
        """Check what an expression loads."""
        match e:
            case Load():
                self.loads(e.index)
                self.within(e.buffer, e.index, Sum((), e.lanes))
            case Cast():
                self.loads(e.arg)
            case Select():
                self.loads(e.condition)
                holds, fails = self.condition(e.condition)
                for part, facts in ((e.then, holds), (e.other, fails)):
                    with self.known.assuming(facts) as chosen:
                        if chosen:
                            self.loads(part)
            case Apply():
                for a in e.args:
                    self.loads(a)

    def within(self, buffer: str, index: Expr, count: Sum) -> None:
        """Raise where ``count`` elements from ``index`` on may lie outside, unless data decide it."""
        low, high = self.extents[buffer]
        at = self.value(index)
        end = at.plus(count).plus(Sum((), -1))
        first, last = self.known.least(at, low), self.known.most(end, high)
        if (first >= low and last <= high) or self.known.is_of_data(end):
            return
        kernel = self.launch.kernel
        raise IRError(
            f"kernel {kernel.name!r}: {buffer}[{expr_text(index)}] goes from {first} to {last},"
            f" and {buffer!r} has elements from {low} to {high}, with {self._lengths()}\n{kernel}"
        )

    def _lengths(self) -> str:
        pairs = zip(self.launch.kernel.params, self.launch.values, strict=True)
        return ", ".join(f"{p.name} {v}" for p, v in pairs if p.dtype is INDEX) or "no lengths"

    def value(self, e: Expr) -> Sum:
        """Return a whole number as a sum of unknowns."""
        known = self.known
        match e:
            case Const():
                return Sum((), int(e.value.real))
            case Var():
                return self.values.get(e.name) or self._unknown(e, e)
            case Cast():
                if not _is_whole(e.arg.dtype) or e.lanes > 1:
                    return self._unknown(e)
                return self._fitting(self.value(e.arg), e)
            case Load():
                if e.buffer in self.read_only:
                    return known.unknown(*_limits(e.dtype), (e.buffer, self.value(e.index)))
                return known.of_data(*_limits(e.dtype))
            case Select():
                return self._either(e)
            case Apply(args=(a, b)) if e.lanes == 1 and _is_whole(a.dtype):
                x, y = self.value(a), self.value(b)
                total = self._applied(e.op, x, y)
                return (
                    known.unknown(*_limits(e.dtype), of=(x, y)) if total is None else self._fitting(total, e)
                )
            case _:
                return self._unknown(e)

    def _applied(self, op: str, a: Sum, b: Sum) -> Sum | None:
        known = self.known
        match op:
            case "add":
                return a.plus(b)
            case "subtract":
                return a.plus(b, -1)
            case "multiply" if not b.terms:
                return a.times(b.constant)
            case "multiply" if not a.terms:
                return b.times(a.constant)
            case "minimum":
                return known.smaller(a, b)
            case "maximum":
                return known.larger(a, b)
            case "quotient" | "modulo" if not b.terms and b.constant > 0 and known.least(a, 0) >= 0:
                n = b.constant
                step = gcd(n, a.constant, *(factor for _, factor in a.terms))  # the rest is a multiple of it
                whole = known.unknown(0, known.most(a) // n, ("quotient", a, n), (a,))
                most = min(n - step, known.most(a)) // step
                rest = known.unknown(0, most, ("modulo", a, n), (a,)).times(step)
                parts = whole.times(n).plus(rest)
                known.learn(parts.plus(a, -1), a.plus(parts, -1))
                return whole if op == "quotient" else rest
            case "bitwise_and" if not b.terms and b.constant >= 0:
                return known.unknown(0, b.constant, ("and", a, b), (a,))
            case _:
                return None

    def _either(self, e: Select) -> Sum:
        """Return one of two numbers: an unknown from the least to the largest."""
        low, high, parts = inf, -inf, []
        for part, facts in zip((e.then, e.other), self.condition(e.condition), strict=True):
            with self.known.assuming(facts) as chosen:
                if chosen:
                    parts.append(self.value(part))
                    low = min(low, self.known.least(parts[-1]))
                    high = max(high, self.known.most(parts[-1]))
        return self.known.unknown(low, high, of=parts)

    def _fitting(self, value: Sum, e: Expr) -> Sum:
        """Return a number that was computed in the dtype of ``e``: where it may wrap around, any."""
        low, high = _limits(e.dtype)
        fits = self.known.least(value, low) >= low and self.known.most(value, high) <= high
        return value if fits else self.known.unknown(low, high, of=(value,))

    def _unknown(self, e: Expr, key: object = None) -> Sum:
        low, high = (0, 1) if isinstance(e, Cast) and e.arg.dtype is bool_ else _limits(e.dtype)
        return self.known.unknown(low, high, key)

    def condition(self, e: Expr) -> tuple[Facts, Facts]:
        """Return what is known where a condition holds, and where it does not."""
        match e:
            case Var():
                return self.facts.get(e.name, ((), ()))
            case Apply(op="logical_not", args=(a,)):
                holds, fails = self.condition(a)
                return fails, holds
            case Apply(op="logical_and", args=(a, b)):
                return self.condition(a)[0] + self.condition(b)[0], ()
            case Apply(op="logical_or", args=(a, b)):
                return (), self.condition(a)[1] + self.condition(b)[1]
            case Apply(op=op, args=(a, b)) if op in _CONDITIONS and e.lanes == 1 and _is_whole(a.dtype):
                x, y = self.value(a), self.value(b)
                if op.startswith("greater"):
                    x, y, op = y, x, op.replace("greater", "less")
                apart, one = x.plus(y, -1), Sum((), 1)
                if op == "equal":
                    return (apart, apart.times(-1)), ()
                if op == "less":
                    return (apart.plus(one),), (apart.times(-1),)
                return (apart,), (apart.times(-1).plus(one),)
            case _:
                return (), ()


def _is_whole(dtype: DType) -> bool:
    return dtype is INDEX or dtype.is_integer


def _limits(dtype: DType) -> Range:
    """Return the least and the largest whole number of a dtype."""
    if dtype is INDEX or not dtype.is_integer:
        return -inf, inf
    bits = 8 * dtype.itemsize
    return (0, 2**bits - 1) if dtype.kind == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
