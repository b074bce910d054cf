"""Distribution functions that tests of hypotheses ask for: the chi-squared and Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

from ..ops.call_errors import with_form
from ..ops.elementwise.comparison import equal, less
from ..ops.elementwise.where_cast import where
from .arguments import real
from .incomplete_gamma_beta import beta_share, gammainc, gammaincc
from .normal import ndtr


@with_form
@real
def chdtr(v: Any, x: Any, /) -> Any:
    """Return the chance that a chi-squared number of ``v`` degrees of freedom is at most ``x``.

    >>> import tensorbus as tb
    >>> f"{tb.special.chdtr(2, tb.asarray(1.0, dtype='float64')).item():.9f}"
    '0.393469340'
    """
    return gammainc(0.5 * v, 0.5 * x)


@with_form
@real
def chdtrc(v: Any, x: Any, /) -> Any:
    """Return the chance that a chi-squared number of ``v`` degrees of freedom is above ``x``.

    >>> import tensorbus as tb
    >>> f"{tb.special.chdtrc(2, tb.asarray(1.0, dtype='float64')).item():.9f}"
    '0.606530660'
    """
    return gammaincc(0.5 * v, 0.5 * x)


@with_form
@real
def stdtr(df: Any, t: Any, /) -> Any:
    """Return the chance that Student's t of ``df`` degrees of freedom is at most ``t``.

    NaN unless ``df > 0``.

    >>> import tensorbus as tb
    >>> f"{tb.special.stdtr(1, tb.asarray(1.0, dtype='float64')).item():.9f}"
    '0.750000000'
    """
    inner = less(1e-30, df) & less(df, 1e20) & less(0, t * t)
    freedom, square = where(inner, df, 1.0), where(inner, t * t, 1.0)
    half = 0.5 + 0 * freedom
    tail = 0.5 * beta_share(0.5 * freedom, half, 1 / (1 + square / freedom), 1 / (1 + freedom / square))
    share = where(inner, where(less(t, 0), tail, 1 - tail), where(less(1, df), ndtr(t), 0.5))
    return where(less(0, df) & equal(t, t), share, math.nan)
