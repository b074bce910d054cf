"""The lengths of a plan: a program that is lowered once for many sizes.

Lowering runs on lengths as it does on integers. They are sums of products here, so that most of what it asks
of them is known for all sizes, that ``4 * s0`` is a multiple of 4 say; all else becomes a condition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from .sym_int import FUNCTIONS, INFIX, ShapeEnv, SymInt, plain

Form = tuple[tuple[tuple[str, ...], int], ...]
"""The terms of a sum, sorted: the factors of each, by name, and its coefficient."""
_Bounds = tuple[int | None, int | None]


SPEED_RANGE: Final = 8
"""How many times as long or as short lengths may be for decisions that only concern speed to stand."""


class PlanEnv(ShapeEnv):
    """The lengths of one plan. ``specialized`` are those that had to be integers, with their conditions.

    Where these are of parts of a length, as of the turns in which a row is taken, they hold for a range of
    it. Equal lengths are equal keys of dicts: what is kept by length serves this plan alone.
    """

    def __init__(self) -> None:
        super().__init__(self._number)
        self.specialized: list[str] = []
        self._bounds: dict[str, _Bounds] = {}
        self._decided: dict[str, None] = {}
        self._differences: list[dict[tuple[str, ...], int]] = []

    def symbol(self, name: str, hint: int, least: int = 0, most: int | None = None) -> SymInt:
        """Return the length of this name, which is not below ``least``: whoever uses the plan sees to it."""
        self.symbols[name], self.hints[name] = name, hint
        self._bounds[name] = least, most
        return self.of_name(name)

    def of_name(self, name: str) -> SymInt:
        """Return the length of this name, which is one already."""
        return SymInt(self, name, self.hints[name], (((name,), 1),))

    def know(self, small: Any, large: Any) -> None:
        """Take it for known that one length is no greater than another: it becomes no condition."""
        self._differences.append(_sum(_terms(large), _terms(small), -1))

    def has_part_in(self, x: Any) -> bool:
        """Return whether one of these lengths is in ``x``: in tuples, lists and dicts too."""
        if type(x) is SymInt:
            return x.env is self
        items = x.values() if type(x) is dict else x if type(x) in (tuple, list) else ()
        return any(map(self.has_part_in, items))

    def of_text(self, text: str) -> Any:
        """Return the length, or the integer, of an expression over the symbols."""
        names = {name: self.of_name(name) for name in self.symbols}
        return eval(text, {"__builtins__": {}, **FUNCTIONS, **names})

    def holds(self) -> Callable[..., bool]:
        """Return the function of the symbols, in order, that says whether the conditions of the plan hold."""
        conditions = " and ".join([f"({text})" for text in self._decided]) or "True"
        text = f"lambda {', '.join(self.symbols)}: {conditions}"
        function: Callable[..., bool] = eval(text, {"__builtins__": {}, **FUNCTIONS})
        return function

    def serves_one_size(self) -> bool:
        """Return whether a length had to be an integer so that the plan serves no other ones near it."""
        if not self.specialized:
            return False
        holds = self.holds()
        return not all(
            any(_holds(holds, {**self.hints, name: n}) for n in _others(hint))
            for name, hint in self.hints.items()
        )

    def add_guard(self, condition: str) -> None:
        """Add a condition, once."""
        self._decided[condition] = None

    @property
    def conditions(self) -> list[str]:
        """The conditions of the plan."""
        return [*self._decided]

    def hash_of(self, x: SymInt) -> int:
        """Return the hash of a length: that of its form."""
        return hash((id(self), x.form))

    def text_of(self, x: SymInt) -> str:
        """Return what a length shows as: its form."""
        return x.text

    def bits_of(self, x: SymInt) -> Any:
        """Return how many bits a length takes."""
        return self.atom(f"({x.text}).bit_length()", x.hint.bit_length(), (0, None))

    def combined(self, sign: str, left: Any, right: Any) -> Any:
        """Return what an operator makes of two lengths, or of a length and an integer."""
        hint = INFIX[sign](plain(left), plain(right))
        match sign:
            case "+":
                return self._of(_sum(_terms(left), _terms(right)), hint)
            case "-":
                return self._of(_sum(_terms(left), _terms(right), -1), hint)
            case "*":
                return self._of(_product(_terms(left), _terms(right)), hint)
            case "//":
                return self._quotient(left, right, hint)
            case "%":
                return self._remainder(left, right, hint)
            case "<<" if type(right) is int and right >= 0:
                return self.combined("*", left, 1 << right)
            case ">>" if type(right) is int and right >= 0:
                return self.combined("//", left, 1 << right)
            case "&" if type(right) is int and right >= 0 and not right & (right + 1):
                return self.combined("%", left, right + 1)
            case "**" if type(right) is int and 0 <= right <= 4:
                power: Any = 1
                for _ in range(right):
                    power = power * left
                return power
        return self.atom(f"({_text(left)} {sign} {_text(right)})", hint, (None, None))

    def compared(self, sign: str, left: Any, right: Any) -> bool:
        """Return what holds for all sizes, or what held for those of the hints: a condition from now on."""
        holds = bool(INFIX[sign](plain(left), plain(right)))
        terms = self._reduced(_sum(_terms(left), _terms(right), -1))
        known = _known(sign, *self._limits(terms))
        if known is not None:
            return known
        if sign in ("==", "!=") and self._never_equal(terms):
            return sign == "!="
        above = {k: c for k, c in terms.items() if c > 0}
        below = {k: -c for k, c in terms.items() if c < 0}
        sides = _shown(above), _shown(below)
        if sign in ("==", "!="):
            sides = min(sides), max(sides)
        if not holds:
            sign = _OPPOSITE[sign]
        self.add_guard(f"{sides[0]} {sign} {sides[1]}")
        return holds

    def _limits(self, terms: Mapping[tuple[str, ...], int]) -> _Bounds:
        """Return the least and the most that a difference can be, by what is known of others too."""
        low, high = self._range(terms)
        for known in self._differences:  # which are not below 0
            above, below = _sum(terms, known, -1), _sum(terms, known)
            if not above.keys() - {()}:
                low = max(above.get((), 0), above.get((), 0) if low is None else low)
            if not below.keys() - {()}:
                high = min(below.get((), 0), below.get((), 0) if high is None else high)
        return low, high

    def _reduced(self, terms: dict[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
        """Return a sum without the positive factors that all of its terms have, which keep its sign."""
        for name in min(terms, key=len, default=()):
            least = self._bounds[name][0]
            if least is not None and least >= 1 and all(name in k for k in terms):
                terms = {_without(k, name): c for k, c in terms.items()}
        return terms

    def _never_equal(self, terms: Mapping[tuple[str, ...], int]) -> bool:
        """Return whether a sum is no multiple of what all its variable terms are multiples of."""
        from math import gcd

        constant = terms.get((), 0)
        common = gcd(*[c for k, c in terms.items() if k])
        return common > 1 and constant % common != 0

    def _of(self, terms: Mapping[tuple[str, ...], int], hint: int) -> Any:
        """Return a sum as a length, or as an integer where it is one."""
        form = tuple(sorted((k, c) for k, c in terms.items() if c))
        if not form:
            return 0
        if form[0][0] == () and len(form) == 1:
            return form[0][1]
        return SymInt(self, _shown(dict(form)), hint, form)

    def atom(self, text: str, hint: int, bounds: _Bounds) -> SymInt:
        """Return what is no sum: one factor, by its text."""
        self._bounds.setdefault(text, bounds)
        return SymInt(self, text, hint, (((text,), 1),))

    def _range(self, terms: Mapping[tuple[str, ...], int]) -> _Bounds:
        """Return the least and the most that a sum can be, where that is known."""
        low: int | None = 0
        high: int | None = 0
        for factors, c in terms.items():
            least, most = self._range_of_product(factors)
            ends = (least, most) if c > 0 else (most, least)
            low = None if low is None or ends[0] is None else low + c * ends[0]
            high = None if high is None or ends[1] is None else high + c * ends[1]
        return low, high

    def _range_of_product(self, factors: tuple[str, ...]) -> _Bounds:
        if len(factors) == 1:
            return self._bounds[factors[0]]
        least: int = 1
        most: int | None = 1
        for name in factors:
            a, b = self._bounds[name]
            if a is None or a < 0:
                return None, None
            least = least * a
            most = None if most is None or b is None else most * b
        return least, most

    def _quotient(self, left: Any, right: Any, hint: int) -> Any:
        if type(right) is int and right > 0:
            terms = _terms(left)
            whole = {k: c // right for k, c in terms.items() if c % right == 0 or not k}
            rest = {k: c % right if not k else c for k, c in terms.items() if c % right}
            low, high = self._range(rest)
            if low is not None and high is not None and low // right == high // right:
                whole[()] = whole.get((), 0) + low // right
                return self._of(whole, hint)
            part = hint - sum(c * self._value(k) for k, c in whole.items())
            bounds = (None if low is None else low // right, None if high is None else high // right)
            atom = self.atom(f"(({_shown(rest)}) // {right})", part, bounds)
            return self._of(_sum(whole, _terms(atom)), hint)
        exact = self._exact(left, right)
        if exact is not None:
            return self._of(exact, hint)
        low = 0 if self._least(left) >= 0 and self._least(right) >= 1 else None
        return self.atom(f"({_text(left)} // {_text(right)})", hint, (low, None))

    def _remainder(self, left: Any, right: Any, hint: int) -> Any:
        if type(right) is int and right > 0:
            rest = {k: c % right if not k else c for k, c in _terms(left).items() if c % right}
            low, high = self._range(rest)
            if low is not None and high is not None and low // right == high // right:
                return self._of(_sum(rest, {(): low // right * right}, -1), hint)
            return self.atom(f"(({_shown(rest)}) % {right})", hint, (0, right - 1))
        if self._exact(left, right) is not None:
            return 0
        low = 0 if self._least(right) >= 1 else None
        return self.atom(f"({_text(left)} % {_text(right)})", hint, (low, None))

    def _exact(self, left: Any, right: Any) -> dict[tuple[str, ...], int] | None:
        """Return the sum that a sum is when it is divided by one term that all of its terms contain."""
        divisor = _terms(right)
        if len(divisor) != 1 or self._least(right) < 1:
            return None
        ((factors, coefficient),) = divisor.items()
        quotient: dict[tuple[str, ...], int] = {}
        for k, c in _terms(left).items():
            left_over = [*k]
            for name in factors:
                if name not in left_over:
                    return None
                left_over.remove(name)
            if c % coefficient:
                return None
            quotient[tuple(left_over)] = c // coefficient
        return quotient

    def _least(self, x: Any) -> float:
        low, _ = self._range(_terms(x))
        return -float("inf") if low is None else low

    def _value(self, factors: Iterable[str]) -> int:
        """Return what a product was at the hints."""
        scope: dict[str, Any] = {"__builtins__": {}, **FUNCTIONS}
        value = 1
        for name in factors:
            value *= eval(name, scope, self.hints)
        return value

    def specialize(self, x: SymInt) -> None:
        """Note that a length had to be an integer."""
        self.specialized.append(x.text)
        self.add_guard(f"{x.text} == {x.hint}")

    def near(self, x: SymInt) -> int:
        """Return a length as it is now; the plan serves ``SPEED_RANGE`` times as long or short."""
        for name in self.symbols:
            if re.search(rf"\b{name}\b", x.text):
                hint = self.hints[name]
                self.add_guard(f"{max(hint // SPEED_RANGE, 1)} <= {name} <= {hint * SPEED_RANGE}")
        return x.hint

    def ratio(self, left: Any, right: Any) -> Any:
        """Return a length divided by a number, to be rounded."""
        return _Ratio(self, left, right) if type(right) in (int, SymInt) else self._number(
            f"({left.text} / {right!r})", left.hint / right
        )  # fmt: skip

    def _number(self, text: str, hint: float) -> float:
        """Return a number that is no integer, which it must be again."""
        self.specialized.append(text)
        self.add_guard(f"{text} == {hint!r}")
        return hint


class _Ratio:
    """A length divided by an integer: rounded it is a length, else a number that must be the same again."""

    def __init__(self, env: PlanEnv, left: SymInt, right: Any) -> None:
        self._env, self._left, self._right = env, left, right

    def __floor__(self) -> Any:
        return self._left // self._right

    def __ceil__(self) -> Any:
        return -(-self._left // self._right)

    __trunc__ = __floor__

    def __round__(self, digits: int | None = None) -> Any:
        left, right = self._left, self._right
        if digits is not None or right <= 0:
            return round(float(self), digits)
        hint = round(left.hint / plain(right))
        return self._env.atom(f"round(({left.text}) / ({_text(right)}))", hint, (0, None))

    def __float__(self) -> float:
        return int(self._left) / int(self._right)

    def __getattr__(self, name: str) -> Any:
        return getattr(float(self), name)


def _others(hint: int) -> Iterator[int]:
    """Yield lengths near one, and its half and its double, as far as they have more than one element."""
    yield from (hint // 2, 2 * hint)
    for away in range(1, 17):
        yield from (n for n in (hint + away, hint - away) if n >= 2)


def _holds(conditions: Callable[..., bool], sizes: Mapping[str, int]) -> bool:
    try:
        return conditions(**sizes)
    except ArithmeticError:
        return False


_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _terms(x: Any) -> Mapping[tuple[str, ...], int]:
    return dict(x.form) if type(x) is SymInt else {(): x} if x else {}


def _sum(
    a: Mapping[tuple[str, ...], int], b: Mapping[tuple[str, ...], int], times: int = 1
) -> dict[tuple[str, ...], int]:
    total = dict(a)
    for k, c in b.items():
        total[k] = total.get(k, 0) + times * c
    return {k: c for k, c in total.items() if c}


def _product(
    a: Mapping[tuple[str, ...], int], b: Mapping[tuple[str, ...], int]
) -> dict[tuple[str, ...], int]:
    product: dict[tuple[str, ...], int] = {}
    for k, c in a.items():
        for m, d in b.items():
            both = tuple(sorted(k + m))
            product[both] = product.get(both, 0) + c * d
    return product


def _without(factors: tuple[str, ...], name: str) -> tuple[str, ...]:
    at = factors.index(name)
    return factors[:at] + factors[at + 1 :]


def _known(sign: str, low: int | None, high: int | None) -> bool | None:
    """Return whether a difference within these limits is below, above or equal to 0; None: it may be."""
    match sign:
        case "<":
            return True if high is not None and high < 0 else False if low is not None and low >= 0 else None
        case ">=":
            return True if low is not None and low >= 0 else False if high is not None and high < 0 else None
        case ">":
            return True if low is not None and low > 0 else False if high is not None and high <= 0 else None
        case "<=":
            return True if high is not None and high <= 0 else False if low is not None and low > 0 else None
    apart = (low is not None and low > 0) or (high is not None and high < 0)
    same = low == high == 0
    return (sign == "!=") if apart else (sign == "==") if same else None


def _text(x: Any) -> str:
    return f"({x.text})" if type(x) is SymInt else str(x)


def _shown(terms: Mapping[tuple[str, ...], int]) -> str:
    """Return a sum as text that Python evaluates."""
    parts = ["*".join([*([str(c)] if c != 1 or not k else []), *k]) for k, c in sorted(terms.items())]
    return " + ".join(parts).replace("+ -", "- ") or "0"
