"""The zeta functions of Hurwitz and Riemann, and the derivatives of ``digamma``.

By Euler and Maclaurin's formula: ten terms of the sum, and twelve of the series for the rest.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..errors import ArgumentError
from ..ops.call_errors import with_form
from ..ops.elementwise.arithmetic import floor, round
from ..ops.elementwise.comparison import equal, less, less_equal, not_equal
from ..ops.elementwise.special import digamma, lgamma
from ..ops.elementwise.transcendental import exp, sin
from ..ops.elementwise.where_cast import where
from .arguments import real

_TERMS: Final = 10
_BERNOULLI: Final = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
    854513 / 138, -236364091 / 2730,
)  # fmt: skip


def _sum(s: Any, q: Any) -> Any:
    """Return the sum of ``(q + k) ** -s`` over k = 0, 1, 2 ... for ``q > 0``, continued to s < 1."""
    total = q**-s
    for k in range(1, _TERMS):
        total = total + (q + k) ** -s
    start = q + _TERMS
    power = start**-s
    total = total + power * (start / (s - 1) + 0.5)
    term = power * s / start
    for j, number in enumerate(_BERNOULLI, 1):
        total = total + number / math.factorial(2 * j) * term
        term = term * (s + (2 * j - 1)) / start * (s + 2 * j) / start
    # Far out only the first term counts, and differences of infinities stand for the others.
    return where(equal(q, math.inf), 0.0, where(equal(s, math.inf), q**-s, total))


def _hurwitz(s: Any, q: Any) -> Any:
    fine = less(1, s)
    s = where(fine, s, 2.0)
    below = less(q, 0)
    whole = floor(where(below, q, 0.0))
    place = where(below, q - whole, where(equal(q, 0), 1.0, q))
    pole = less_equal(q, 0) & equal(q, floor(q))
    total = _sum(s, where(equal(place, 0), 1.0, place))
    # The terms below zero are those of a sum above it, from 1 - place on, as far as there are any.
    odd = not_equal(s - 2 * floor(0.5 * s), 0)
    mirrored = where(below & ~pole, 1 - place, 1.0)
    passed = _sum(s, mirrored) - _sum(s, mirrored - whole)
    total = where(below, total + where(odd, -passed, passed), total)
    total = where(pole, math.inf, where(below & not_equal(s, floor(s)), math.nan, total))
    return where(fine, total, math.nan)


def _riemann(s: Any) -> Any:
    """Below -1 by the reflection from ``1 - s``, elsewhere by the sum and its continuation."""
    mirror = less(s, -1)
    above = where(mirror, 1 - s, s)
    direct = _sum(above, 1 + 0 * above)
    turns = 0.5 * where(mirror, s, 0.0)
    near = round(turns)
    even = equal(near - 2 * floor(0.5 * near), 0)
    wave = sin(math.pi * (turns - near))
    size = exp(lgamma(above) - above * math.log(2 * math.pi))
    return where(mirror, where(even, 2 * wave, -2 * wave) * size * direct, direct)


@real
def _zeta(s: Any, *q: Any) -> Any:
    value = where(not_equal(q[0], q[0]), q[0], _hurwitz(s, q[0])) if q else _riemann(s)
    return where(not_equal(s, s), s, where(equal(s, 1), math.inf, value))


@with_form
def zeta(s: Any, q: Any = None, /) -> Any:
    """Return the sum of ``(q + k) ** -s`` over k = 0, 1, 2 ...; without ``q`` Riemann's zeta function.

    Infinite at ``s == 1`` and where ``q`` is 0, -1, -2 ...; with ``q`` NaN for ``s < 1``, and for ``q < 0``
    where ``s`` is no whole number.

    >>> import tensorbus as tb
    >>> f"{tb.special.zeta(tb.asarray(2.0, dtype='float64')).item() * 6:.9f}"
    '9.869604401'
    """
    return _zeta(s) if q is None else _zeta(s, q)


@with_form
def multigammaln(x: Any, p: int, /) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension ``p``, for ``x > (p - 1) / 2``.

    ``log(pi) * p * (p - 1) / 4`` plus ``gammaln`` of ``x``, ``x - 1/2`` ... ``x - (p - 1) / 2``; NaN for a
    smaller ``x``. Raises ``ArgumentError`` for ``p`` that is no integer of at least 1.

    >>> import tensorbus as tb
    >>> f"{tb.special.multigammaln(tb.asarray(2.0), 2).item():.4f}"
    '0.4516'
    """
    if not hasattr(p, "__index__") or p < 1:
        raise ArgumentError(f"multigammaln: p must be an integer >= 1, got {p!r}.")
    return _multigammaln(x, p.__index__())


def _multigammaln(x: Any, p: int) -> Any:
    @real
    def multigammaln(x: Any) -> Any:
        inside = less((p - 1) / 2, x)
        total = lgamma(where(inside, x, float(p))) + math.log(math.pi) * p * (p - 1) / 4
        for k in range(1, p):
            total = total + lgamma(where(inside, x, float(p)) - k / 2)
        return where(inside, total, math.nan)

    return multigammaln(x)


@with_form
@real
def polygamma(n: Any, x: Any, /) -> Any:
    """Return the ``n``-th derivative of ``digamma`` at ``x``; ``n`` is 0, 1, 2 ..., a number or a tensor.

    >>> import tensorbus as tb
    >>> f"{tb.special.polygamma(1, tb.asarray(1.0, dtype='float64')).item() * 6:.9f}"
    '9.869604401'
    """
    odd = not_equal(n - 2 * floor(0.5 * n), 0)
    size = exp(lgamma(n + 1)) * _hurwitz(where(equal(n, 0), 2.0, n + 1), x)
    return where(equal(n, 0), digamma(x), where(odd, size, -size))
