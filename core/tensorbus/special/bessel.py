"""Modified Bessel functions of the first kind, of order 0 and 1, and their values scaled by ``exp(-abs(x))``.

Chebyshev series on [0, 8] and, in 1/x, beyond; fitted to 50 digits for this module.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..ops.call_errors import with_form
from ..ops.elementwise.arithmetic import abs, maximum, minimum
from ..ops.elementwise.comparison import equal, less
from ..ops.elementwise.special import chebyshev
from ..ops.elementwise.transcendental import exp, sqrt
from ..ops.elementwise.where_cast import where
from .arguments import real

_ZERO_NEAR: Final = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764,
    0.04930528423967071, -0.02373741480589947, 0.010546460394594998, -0.004324309995050576,
    0.0016394756169413357, -0.0005763755745385824, 0.00018850288509584165, -5.754195010082104e-05,
    1.6448448070728896e-05, -4.4167383584587505e-06, 1.1173875391201037e-06, -2.670793853940612e-07,
    6.046995022541919e-08, -1.300025009986248e-08, 2.6598237246823866e-09, -5.189795601635263e-10,
    9.675809035373237e-11, -1.726826291441556e-11, 2.95505266312964e-12, -4.856446783111929e-13,
    7.676185498604936e-14, -1.1685332877993451e-14, 1.715391285555133e-15, -2.431279846547955e-16,
    3.3307945188222384e-17,
)  # fmt: skip
"""exp(-x) * i0(x) in x over [0, 8]."""
_ZERO_FAR: Final = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12,
    7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14,
    -9.554846698828307e-15, 3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16,
    -2.8276239805165836e-16, 3.461222867697461e-17, 4.46562142029676e-17,
)  # fmt: skip
"""sqrt(x) * exp(-x) * i0(x) in 1/x over [0, 1/8]."""
_ONE_NEAR: Final = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499,
    0.024726449030626516, -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532,
    0.0005122859561685758, -0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05,
    3.4702513081376785e-06, -8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08,
    9.381537386495773e-09, -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11,
    1.1736186298890901e-11, -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14,
    7.600684294735408e-15, -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17,
)  # fmt: skip
"""exp(-x) * i1(x) / x in x over [0, 8]."""
_ONE_FAR: Final = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
    -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
    -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17,
)  # fmt: skip
"""sqrt(x) * exp(-x) * i1(x) in 1/x over [0, 1/8]."""


def _far(coefficients: tuple[float, ...], size: Any) -> Any:
    large = maximum(size, 8.0)
    return chebyshev(coefficients, 1 / large, 0.0, 0.125) / sqrt(large)


def _zero(x: Any) -> Any:
    size = abs(x)
    near = chebyshev(_ZERO_NEAR, minimum(size, 8.0), 0.0, 8.0)
    return where(less(size, 8), near, _far(_ZERO_FAR, size))


def _one(x: Any) -> Any:
    size = abs(x)
    near = x * chebyshev(_ONE_NEAR, minimum(size, 8.0), 0.0, 8.0)
    far = _far(_ONE_FAR, size)
    return where(less(size, 8), near, where(less(x, 0), -far, far))


def _grown(scaled: Any, x: Any, sign: Any) -> Any:
    """Undo the scaling in two steps: the result may fit where ``exp(abs(x))`` does not."""
    half = exp(0.5 * abs(x))
    return where(equal(half, math.inf), sign * half, half * scaled * half)


@with_form
@real
def i0e(x: Any, /) -> Any:
    """Return ``exp(-abs(x)) * i0(x)``, which overflows nowhere.

    >>> import tensorbus as tb
    >>> f"{tb.special.i0e(tb.asarray(1000.0, dtype='float64')).item():.9f}"
    '0.012617240'
    """
    return _zero(x)


@with_form
@real
def i1e(x: Any, /) -> Any:
    """Return ``exp(-abs(x)) * i1(x)``, which overflows nowhere.

    >>> import tensorbus as tb
    >>> tb.special.i1e(tb.asarray([0.0, float("inf")])).tolist()
    [0.0, 0.0]
    """
    return _one(x)


@with_form
@real
def i0(x: Any, /) -> Any:
    """Return the modified Bessel function of the first kind, of order 0.

    >>> import tensorbus as tb
    >>> f"{tb.special.i0(tb.asarray(1.0, dtype='float64')).item():.9f}"
    '1.266065878'
    """
    return _grown(_zero(x), x, 1)


@with_form
@real
def i1(x: Any, /) -> Any:
    """Return the modified Bessel function of the first kind, of order 1.

    >>> import tensorbus as tb
    >>> tb.special.i1(tb.asarray([0.0, -float("inf")])).tolist()
    [0.0, -inf]
    """
    return _grown(_one(x), x, where(less(x, 0), -1, 1))
