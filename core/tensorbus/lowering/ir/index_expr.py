"""Arithmetic on positions: expressions of type INDEX, folded where a term is 0 or 1.

All quantities are non-negative unless a caller says so, which makes ``quotient`` and ``modulo`` plain machine
division.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Final

from ...dtypes.definition import bool_
from .loop_ir import INDEX, Apply, Const, Expr

ZERO: Final = Const(0, INDEX)
ONE: Final = Const(1, INDEX)


@lru_cache(maxsize=256)
def const(value: int) -> Const:
    """Return a literal position."""
    return Const(index(value), INDEX)


def add(a: Expr, b: Expr) -> Expr:
    """Return ``a + b``."""
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value.real) + int(b.value.real))
    if a == ZERO:
        return b
    if b == ZERO:
        return a
    return Apply("add", (a, b), INDEX)


def subtract(a: Expr, b: Expr) -> Expr:
    """Return ``a - b``."""
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value.real) - int(b.value.real))
    if b == ZERO:
        return a
    if a == b:
        return ZERO
    return Apply("subtract", (a, b), INDEX)


def multiply(a: Expr, b: Expr) -> Expr:
    """Return ``a * b``."""
    if isinstance(a, Const) and isinstance(b, Const):
        return const(int(a.value.real) * int(b.value.real))
    if ZERO in (a, b):
        return ZERO
    if a == ONE:
        return b
    if b == ONE:
        return a
    return Apply("multiply", (a, b), INDEX)


def quotient(a: Expr, b: Expr) -> Expr:
    """Return ``a // b`` for non-negative operands."""
    if a == ZERO or b == ONE:
        return a
    return Apply("quotient", (a, b), INDEX)


def modulo(a: Expr, b: Expr) -> Expr:
    """Return ``a % b`` for non-negative operands."""
    if a == ZERO or b == ONE:
        return ZERO
    return Apply("modulo", (a, b), INDEX)


def minimum(a: Expr, b: Expr) -> Expr:
    """Return the smaller of two."""
    return a if a == b else Apply("minimum", (a, b), INDEX)


def less(a: Expr, b: Expr) -> Expr:
    """Return the condition ``a < b``."""
    return Apply("less", (a, b), bool_)


def both(conditions: Sequence[Expr]) -> Expr:
    """Return the conjunction of conditions (at least one)."""
    result = conditions[0]
    for c in conditions[1:]:
        result = Apply("logical_and", (result, c), bool_)
    return result


def dot(index: Sequence[Expr], strides: Sequence[Expr], offset: Expr = ZERO) -> Expr:
    """Return ``offset + sum(index * strides)``."""
    result = offset
    for i, s in zip(index, strides, strict=True):
        result = add(result, multiply(i, s))
    return result


def flatten(index: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Return the place of ``index`` in C order (Horner's rule)."""
    result: Expr = ZERO
    for i, n in zip(index, shape, strict=True):
        result = add(multiply(result, n), i)
    return result


def unflatten(place: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """Return the index that lies at ``place`` in C order."""
    result: list[Expr] = []
    for k in range(len(shape) - 1, 0, -1):
        result.append(modulo(place, shape[k]))
        place = quotient(place, shape[k])
    if shape:
        result.append(ZERO if shape[0] == ONE else place)
    return tuple(reversed(result))
