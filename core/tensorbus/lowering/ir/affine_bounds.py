"""Bounds of whole numbers: sums of unknowns times factors, and the facts that bound them.

An unknown is a number of its own, with a range. A fact is a sum that is not positive. How large a sum can
be follows from the ranges of its unknowns, and from facts that take the place of some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import gcd, inf
from typing import Final

_STEPS: Final = 800
"""How many sums are looked at before one counts as unbounded."""
_DEPTH: Final = 5


@dataclass(frozen=True, slots=True)
class Sum:
    """``constant`` and unknowns, by their numbers, each times its factor."""

    terms: tuple[tuple[int, int], ...] = ()
    constant: int = 0

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """Return ``self + times * other``."""
        terms = dict(self.terms)
        for k, factor in other.terms:
            terms[k] = terms.get(k, 0) + times * factor
        return _sum(terms, self.constant + times * other.constant)

    def times(self, factor: int) -> Sum:
        """Return ``factor * self``."""
        return Sum().plus(self, factor)


def _sum(terms: Mapping[int, int], constant: int) -> Sum:
    return Sum(tuple(sorted((k, f) for k, f in terms.items() if f)), constant)


Facts = tuple[Sum, ...]
"""Sums that are not positive."""


class Knowledge:
    """Unknowns with their ranges and the facts that hold of them, for good or within a block."""

    def __init__(self) -> None:
        self._ranges: list[tuple[float, float]] = []
        self._facts: dict[int, list[Sum]] = {}
        self._known: dict[object, Sum] = {}
        self._choices: dict[int, tuple[tuple[Sum, Sum], int]] = {}
        self._of_data: set[int] = set()

    def unknown(
        self, low: float = -inf, high: float = inf, key: object = None, of: Iterable[Sum] = ()
    ) -> Sum:
        """Return a new unknown; the same again for the same ``key``. ``of`` is what it is computed from."""
        if key is not None and key in self._known:
            return self._known[key]
        if low == high:
            return Sum((), int(low))
        self._ranges.append((low, high))
        new = Sum(((len(self._ranges) - 1, 1),))
        if key is not None:
            self._known[key] = new
        if any(map(self.is_of_data, of)):
            self._of_data.add(len(self._ranges) - 1)
        return new

    def of_data(self, low: float, high: float) -> Sum:
        """Return an unknown that follows from what a program computes, not from lengths."""
        unknown = self.unknown(low, high)
        self._of_data |= {k for k, _ in unknown.terms}
        return unknown

    def is_of_data(self, x: Sum) -> bool:
        """Return whether such unknowns bear on ``x``."""
        return any(k in self._of_data for k, _ in x.terms)

    def smaller(self, a: Sum, b: Sum) -> Sum:
        """Return the smaller of two sums."""
        low, high = (min(self.least(a), self.least(b)), min(self.most(a), self.most(b)))
        minimum = self.unknown(low, high, ("smaller", a, b), (a, b))
        return self._one_of(minimum, (a, b), 1)

    def larger(self, a: Sum, b: Sum) -> Sum:
        """Return the larger of two sums."""
        low, high = (max(self.least(a), self.least(b)), max(self.most(a), self.most(b)))
        maximum = self.unknown(low, high, ("larger", a, b), (a, b))
        return self._one_of(maximum, (a, b), -1)

    def _one_of(self, result: Sum, choice: tuple[Sum, Sum], sign: int) -> Sum:
        for k, _ in result.terms:
            if k not in self._choices:
                self._choices[k] = choice, sign
                self.learn(*(result.plus(x, -1).times(sign) for x in choice))
        return result

    def _of_both(self, fact: Sum) -> Iterator[Sum]:
        """Yield what a fact says of both sides of a choice: what is below the smaller is below each."""
        for k, factor in fact.terms:
            choice, sign = self._choices.get(k, ((), 0))
            if factor * sign < 0:
                for part in choice:
                    yield fact.plus(Sum(((k, 1),)), -factor).plus(part, factor)

    def learn(self, *facts: Sum) -> None:
        """Keep facts for good."""
        for fact in facts:
            for k, _ in fact.terms:
                self._facts.setdefault(k, []).append(fact)

    @contextmanager
    def assuming(self, facts: Iterable[Sum]) -> Iterator[bool]:
        """Keep facts meanwhile; yields False where they cannot hold.

        Unknowns of a key that come meanwhile are forgotten: their ranges rest on the facts.
        """
        held = [_whole(x) for f in facts for x in (f, *self._of_both(f))]
        self.learn(*held)
        known = dict(self._known)
        try:
            yield all(self.most(f.times(-1), -1) >= 0 for f in held)
        finally:
            self._known = known
            for fact in held:
                for k, _ in fact.terms:
                    self._facts[k].remove(fact)

    def most(self, x: Sum, enough: float = -inf) -> float:
        """Return a number that ``x`` never exceeds, the least that is found: no smaller than ``enough``."""
        best = self._most_by_facts(x, enough)
        if best > enough > -inf:
            best = min(best, self._apart(x))
        for k, factor in x.terms:
            if best > enough and k in self._choices:
                each = [x.plus(Sum(((k, 1),)), -factor).plus(part, factor) for part in self._choices[k][0]]
                best = min(best, max(self.most(part, enough) for part in each))
        return best

    def _most_by_facts(self, x: Sum, enough: float) -> float:
        """Return ``most`` by ranges and facts."""
        best = self._reach(x)
        seen = {x}
        level = [(x, 1)]
        for _ in range(_DEPTH):
            following: list[tuple[Sum, int]] = []
            for part, scale in level:
                for replacement, times in self._instead(part):
                    if replacement in seen:
                        continue
                    seen.add(replacement)
                    best = min(best, self._reach(replacement) // (scale * times))
                    if best <= enough or len(seen) > _STEPS:
                        return best
                    following.append((replacement, scale * times))
            level = following
        return best

    def _apart(self, x: Sum) -> float:
        """Return ``most`` of each unknown by itself: those of many axes take more than ``_DEPTH`` facts."""
        each = (abs(f) * self._most_by_facts(Sum(((k, 1 if f > 0 else -1),)), -inf) for k, f in x.terms)
        return sum(each, x.constant)

    def least(self, x: Sum, enough: float = inf) -> float:
        """Return a number that ``x`` never falls below, the largest that is found."""
        return -self.most(x.times(-1), -enough)

    def _reach(self, x: Sum) -> float:
        total: float = x.constant
        for k, factor in x.terms:
            total += factor * self._ranges[k][factor > 0]
        return total

    def _instead(self, x: Sum) -> Iterator[tuple[Sum, int]]:
        """Yield sums that are no smaller than so many times ``x``, with one unknown fewer of it."""
        for k, factor in x.terms:
            for fact in self._facts.get(k, ()):
                other = dict(fact.terms)[k]
                if factor * other > 0:
                    common = gcd(factor, other)
                    times = abs(other) // common
                    yield x.times(times).plus(fact, -(abs(factor) // common)), times


def _whole(fact: Sum) -> Sum:
    """Return a fact without the common divisor of its factors: what is left over rounds towards it."""
    common = gcd(*(f for _, f in fact.terms))
    if common < 2:
        return fact
    return Sum(tuple((k, f // common) for k, f in fact.terms), -(-fact.constant // common))
