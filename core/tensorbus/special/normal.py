"""The normal distribution function, its logarithm and its inverse."""

from __future__ import annotations

import math
from typing import Any, Final

from ..ops.call_errors import with_form
from ..ops.elementwise.arithmetic import maximum, minimum
from ..ops.elementwise.comparison import equal, less
from ..ops.elementwise.special import ERFC, INVERSE_FAR, INVERSE_NEAR, chebyshev, erfc
from ..ops.elementwise.transcendental import log, log1p, sqrt
from ..ops.elementwise.where_cast import where
from .arguments import real

_INVERSE_FARTHEST: Final = (
    0.9885386241940174, -0.010195747344596127, -0.000729291659450126, 0.00010678254849404575,
    -9.359575366182864e-06, 1.26739295418996e-06, -2.249527048151907e-07, 4.524931507833691e-08,
    -9.94891636840019e-09, 2.338807793835794e-09, -5.783555555600267e-10, 1.4878862963777695e-10,
    -3.951417930875328e-11, 1.0771660816831131e-11, -3.0012448132528594e-12, 8.51870680140464e-13,
    -2.456783298523064e-13, 7.184095021651096e-14, -2.126415016888161e-14, 6.361852330624131e-15,
    -1.921615692904285e-15, 5.854195271417909e-16, -1.7972805705479372e-16, 5.556484381567112e-17,
)  # fmt: skip
"""erfinv(y) / (y * r) in 1/r over [1/27.5, 1/6.2], where r = sqrt(-log(1 - y**2))."""


@with_form
@real
def ndtr(x: Any, /) -> Any:
    """Return the chance that a standard normal number is at most ``x``; precise in the lower tail.

    >>> import tensorbus as tb
    >>> tb.special.ndtr(tb.asarray([0.0, -40.0], dtype='float64')).tolist()[0]
    0.5
    """
    return 0.5 * erfc(x * -math.sqrt(0.5))


@with_form
@real
def log_ndtr(x: Any, /) -> Any:
    """Return the logarithm of ``ndtr(x)``, also where that is too small for its dtype.

    >>> import tensorbus as tb
    >>> f"{tb.special.log_ndtr(tb.asarray(-100.0, dtype='float64')).item():.3f}"
    '-5005.524'
    """
    far = less(x, -1)
    size = where(far, x, -1.0) * -math.sqrt(0.5)
    t = 2 / (2 + size)
    below = log(0.5 * t * chebyshev(ERFC, t, 0.0, 0.8)) - size * size
    return where(far, below, log1p(-0.5 * erfc(where(far, 0.0, x) * math.sqrt(0.5))))


@with_form
@real
def ndtri(p: Any, /) -> Any:
    """Return the number below which a standard normal one lies with probability ``p``: ``ndtr``'s inverse.

    Infinite at 0 and 1, NaN outside.

    >>> import tensorbus as tb
    >>> tb.special.ndtri(tb.asarray([0.5, 1.0])).tolist()
    [0.0, inf]
    """
    inside = less(0, p) & less(p, 1)
    low = less(p, 0.5)
    share = where(inside, where(low, p, 1 - p), 0.5)
    rest = 1 - 2 * share
    w = -(where(less(share, 0.25), log(2 * share), log1p(-where(less(share, 0.25), 0.0, rest))) + log1p(rest))
    root = sqrt(maximum(w, 6.25))
    near = chebyshev(INVERSE_NEAR, minimum(w, 6.25), 0.0, 6.25)
    far = chebyshev(INVERSE_FAR, minimum(root, 6.2), 2.5, 6.2)
    farthest = root * chebyshev(_INVERSE_FARTHEST, 1 / maximum(root, 6.2), 1 / 27.5, 1 / 6.2)
    size = math.sqrt(2) * rest * where(less(w, 6.25), near, where(less(root, 6.2), far, farthest))
    quantile = where(inside, where(low, -size, size), math.nan)
    return where(equal(p, 0), -math.inf, where(equal(p, 1), math.inf, quantile))
