"""Products with logarithms that are 0 at 0, and the divergences that use them."""

from __future__ import annotations

import math
from typing import Any

from ..ops.call_errors import with_form
from ..ops.elementwise import special
from ..ops.elementwise.arithmetic import abs
from ..ops.elementwise.comparison import equal, less, less_equal
from ..ops.elementwise.transcendental import log, log1p
from ..ops.elementwise.where_cast import where
from .arguments import real


@with_form
@real
def xlogy(x: Any, y: Any, /) -> Any:
    """Return ``x * log(y)``, and 0 where ``x`` is 0 unless ``y`` is NaN.

    >>> import tensorbus as tb
    >>> tb.special.xlogy(tb.asarray([0.0, 1.0]), 0.0).tolist()
    [0.0, -inf]
    """
    return special.xlogy(x, y)


@with_form
@real
def xlog1py(x: Any, y: Any, /) -> Any:
    """Return ``x * log1p(y)``, and 0 where ``x`` is 0 unless ``y`` is NaN.

    >>> import tensorbus as tb
    >>> tb.special.xlog1py(tb.asarray([0.0, 1.0]), -1.0).tolist()
    [0.0, -inf]
    """
    still = equal(x, 0) & equal(y, y)
    return where(still, 0.0, x * log1p(where(still, 0.0, y)))


@with_form
@real
def rel_entr(x: Any, y: Any, /) -> Any:
    """Return ``x * log(x / y)``: 0 where ``x`` is 0, infinite where only ``y`` is, or either is below 0.

    >>> import tensorbus as tb
    >>> tb.special.rel_entr(tb.asarray([0.0, 1.0, 1.0]), tb.asarray([0.0, 1.0, 0.0])).tolist()
    [0.0, 0.0, inf]
    """
    inner = less(0, x) & less(0, y)
    x_inside, y_inside = where(inner, x, 1.0), where(inner, y, 1.0)
    change = (x_inside - y_inside) / y_inside
    near = less(abs(change), 0.5)
    apart = log(where(near, 1.0, x_inside)) - log(where(near, 1.0, y_inside))
    divergence = x_inside * where(near, log1p(where(near, change, 0.0)), apart)
    divergence = where(equal(x, 0) & less_equal(0, y), 0.0, where(inner, divergence, math.inf))
    return where(equal(x, x) & equal(y, y), divergence, math.nan)


@with_form
@real
def kl_div(x: Any, y: Any, /) -> Any:
    """Return ``x * log(x / y) - x + y``, which is never below 0; SciPy's, not the loss of that name.

    >>> import tensorbus as tb
    >>> tb.special.kl_div(tb.asarray([0.0, 1.0]), tb.asarray([2.0, 1.0])).tolist()
    [2.0, 0.0]
    """
    allowed = less_equal(0, x) & less_equal(0, y)
    return rel_entr(x, y) - where(allowed, x - y, 0.0)
