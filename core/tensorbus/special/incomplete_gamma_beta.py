"""The incomplete gamma and beta functions, regularized: chances of the chi-squared and the beta distribution.

Each is an integral over a tail. With the logarithm of the variable (of the odds, for beta) as a new variable
the integrand has one peak and dies out at least exponentially, so 32 points of Gauss and Legendre's rule
suffice, on the stretch where it falls by a factor of exp(38). The tail is the one without the peak; the other
is its difference from 1. What is left before the integral is taken at the peak, so that nothing overflows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from ..dtypes import definition as dt
from ..ops.call_errors import with_form
from ..ops.elementwise.arithmetic import abs, hypot, minimum
from ..ops.elementwise.comparison import equal, less, less_equal
from ..ops.elementwise.special import lgamma
from ..ops.elementwise.transcendental import exp, expm1, log, log1p, sqrt
from ..ops.elementwise.where_cast import where
from .arguments import real

_POINTS: Final = 32
_TAIL_EXPONENT: Final = 38.0
"""The logarithm of what is left out: below the last bit of float64."""
_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_FEW_TERMS_BELOW: Final = 4.0
"""Where the exponent that makes a tail die out is smaller, two terms of its series are taken out first."""


@cache
def _rule() -> tuple[tuple[float, float], ...]:
    """Return the points and weights of Gauss and Legendre's rule on [0, 1], by Newton's method."""
    nodes = []
    for k in range(_POINTS):
        x = math.cos(math.pi * (k + 0.75) / (_POINTS + 0.5))
        for _ in range(8):
            below, here = 1.0, x
            for n in range(2, _POINTS + 1):
                below, here = here, ((2 * n - 1) * x * here - (n - 1) * below) / n
            slope = _POINTS * (x * here - below) / (x * x - 1)
            x -= here / slope
        nodes.append(((1 + x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return tuple(nodes)


def _integral(exponent: Callable[[Any], Any], length: Any) -> Any:
    """Return the integral of ``exp(-exponent(s))`` over s from 0 to ``length``."""
    total: Any = 0.0
    for point, weight in _rule():
        total = total + weight * exp(-exponent(point * length))
    return total * length


def _length(slope: Any, bend: Any, step: Callable[[Any], tuple[Any, Any]]) -> Any:
    """Return where a convex function that starts at 0 reaches ``_TAIL_EXPONENT``.

    From its parabola by Newton's method; ``step`` returns the function and its derivative. A length is one
    whose exponential is a number.
    """
    most = math.log(dt.largest(slope.dtype)) - 1
    length = minimum(2 * _TAIL_EXPONENT / (slope + hypot(slope, sqrt(2 * _TAIL_EXPONENT * bend))), most)
    for _ in range(4):
        value, rise = step(length)
        length = minimum(length - (value - _TAIL_EXPONENT) / rise, most)
    return length


def _log_excess(a: Any) -> Any:
    """Return the logarithm of the gamma function over Stirling's ``sqrt(2 pi / a) * (a / e) ** a``."""
    large = less_equal(8, a)
    far = 1 / where(large, a, 8.0)
    square = far * far
    series: Any = _STIRLING[-1]
    for c in _STIRLING[-2::-1]:
        series = series * square + c
    near = where(large, 1.0, a)
    direct = lgamma(near) - (near - 0.5) * log(near) + near - 0.5 * math.log(2 * math.pi)
    return where(large, far * series, direct)


def _log_ratio(change: Any, ratio: Any) -> Any:
    """Return ``log(ratio)``, from its difference from 1 where that is small."""
    close = less(abs(change), 0.5)
    bounded = minimum(where(close, 1.0, ratio), dt.largest(ratio.dtype))
    return where(close, log1p(where(close, change, 0.0)), log(bounded))


def _gamma_tails(a: Any, x: Any) -> tuple[Any, Any]:
    """Return both tails, lower and upper, for finite ``a, x > 0``."""
    upper = less(1.5, x) & less(a, x)
    short = ~upper & less(a, _FEW_TERMS_BELOW)
    order = where(short, a + 2, a)
    ratio = (x - order) / order
    start = _log_ratio(ratio, x / order)

    def step(length: Any) -> tuple[Any, Any]:
        signed = where(upper, length, -length)
        grown = x * expm1(signed)
        return grown - order * signed, abs(x - order + grown)

    length = _length(abs(x - order), x, step)
    signed = where(upper, length, -length)

    def exponent(s: Any) -> Any:
        place = start + where(upper, s, -s)
        return order * (expm1(place) - place)

    tail = exp(-_log_excess(order)) * sqrt(order * (0.5 / math.pi)) * _integral(exponent, abs(signed))
    first = exp(a * log(x) - x - lgamma(a + 1))
    tail = minimum(tail + where(short, first * (1 + x / (a + 1)), 0.0), 1.0)
    return where(upper, 1 - tail, tail), where(upper, tail, 1 - tail)


def _gamma(a: Any, x: Any, which: int, at_zero: float) -> Any:
    """Return one tail, with its limits; ``at_zero`` is its value where ``x`` is 0."""
    inner = less(0, a) & less(a, math.inf) & less(0, x) & less(x, math.inf)
    share = _gamma_tails(where(inner, a, 1.0), where(inner, x, 1.0))[which]
    # Beside the limits: all of the mass lies at 0 where a is 0, and at infinity where a is infinite.
    low = equal(x, 0) | (equal(a, math.inf) & less(x, math.inf))
    high = equal(a, 0) | (equal(x, math.inf) & less(a, math.inf))
    fine = less_equal(0, a) & less_equal(0, x) & ~(equal(a, 0) & equal(x, 0))
    share = where(fine & high, 1 - at_zero, where(inner, share, math.nan))
    return where(fine & low & ~high, at_zero, share)


@with_form
@real
def gammainc(a: Any, x: Any, /) -> Any:
    """Return the regularized lower incomplete gamma function: 0 at ``x == 0``, 1 far out.

    NaN where ``a`` or ``x`` is negative. The smaller of the tails is precise to some 1e-13.

    >>> import tensorbus as tb
    >>> f"{tb.special.gammainc(1.0, tb.asarray(1.0, dtype='float64')).item():.9f}"
    '0.632120559'
    """
    return _gamma(a, x, 0, 0.0)


@with_form
@real
def gammaincc(a: Any, x: Any, /) -> Any:
    """Return the regularized upper incomplete gamma function, ``1 - gammainc(a, x)``; precise in its tail.

    >>> import tensorbus as tb
    >>> f"{tb.special.gammaincc(1.0, tb.asarray(1.0, dtype='float64')).item():.9f}"
    '0.367879441'
    """
    return _gamma(a, x, 1, 1.0)


def _height(p: Any, q: Any, near: Any, far: Any) -> Any:
    """Return ``near**p * far**q`` over the beta function of ``p`` and ``q``, from that at the mean."""
    both = p + q
    off = p * far - q * near
    share = p * _log_ratio(-off / p, near / p * both) + q * _log_ratio(off / q, far / q * both)
    excess = _log_excess(both) - _log_excess(p) - _log_excess(q)
    return sqrt(p / both * q * (0.5 / math.pi)) * exp(excess + share)


def beta_share(a: Any, b: Any, x: Any, y: Any) -> Any:
    """Return ``betainc(a, b, x)`` for finite ``a, b > 0`` and ``x, y > 0`` that add up to 1."""
    upper = less(a * y, b * x)
    # The upper tail is the lower one of the mirrored distribution.
    p, q, near, far = where(upper, b, a), where(upper, a, b), where(upper, y, x), where(upper, x, y)
    short = less(p, _FEW_TERMS_BELOW)
    order = where(short, p + 2, p)
    both = order + q

    # The two forms are one; the terms of the one with the smaller share do not cancel.
    inverted = less(far, near)
    sign, share, rate = where(inverted, 1, -1), where(inverted, far, near), where(inverted, -q, order)

    def exponent(s: Any) -> Any:
        return both * log1p(share * expm1(sign * s)) + rate * s

    def step(length: Any) -> tuple[Any, Any]:
        change = near * expm1(-length)
        return exponent(length), (slope - q * change) / (1 + change)

    slope = order * far - q * near
    length = _length(slope, both * near * far, step)
    height = _height(p, q, near, far)
    first = height / p * (1 + near * (p + q) / (p + 1))
    further = near * (p + q) / p * near * (p + q + 1) / (p + 1)
    tail = where(short, first, 0.0) + height * where(short, further, 1.0) * _integral(exponent, length)
    tail = minimum(tail, 1.0)
    return where(upper, 1 - tail, tail)


@with_form
@real
def betainc(a: Any, b: Any, x: Any, /) -> Any:
    """Return the regularized incomplete beta function: 0 at ``x == 0``, 1 at ``x == 1``, NaN outside.

    NaN where ``a`` or ``b`` is negative, or both are 0 or infinite. The smaller of the result and its
    difference from 1 is precise to some 1e-12.

    >>> import tensorbus as tb
    >>> f"{tb.special.betainc(2.0, 2.0, tb.asarray(0.25, dtype='float64')).item():.9f}"
    '0.156250000'
    """
    both = equal(a + b, 0) | (equal(a, math.inf) & equal(b, math.inf))
    fine = less_equal(0, a) & less_equal(0, b) & ~both & less_equal(0, x) & less_equal(x, 1)
    inner = fine & less(0, a) & less(0, b) & less(a + b, math.inf) & less(0, x) & less(x, 1)
    a_inside, b_inside, share = where(inner, a, 1.0), where(inner, b, 1.0), where(inner, x, 0.5)
    value = where(inner, beta_share(a_inside, b_inside, share, 1 - share), math.nan)
    # All of the mass lies at 0 where a is 0 or b infinite, and at 1 the other way round.
    below = equal(x, 1) | (less(0, x) & (equal(a, 0) | equal(b, math.inf)))
    return where(fine & ~inner & below, 1.0, where(fine & ~inner & ~below, 0.0, value))
