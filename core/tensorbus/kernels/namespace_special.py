"""Special functions over any array-API-like library that lacks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

_NEAR: Final = (
    0.7415552820424018, -0.30107107338659495, 0.06899483068983156, -0.013916271264722188,
    0.0024207995224334636, -0.0003658639685848086, 4.862098443231905e-05, -5.749256558035685e-06,
    6.113243578434765e-07, -5.8991015312958435e-08, 5.2070090920686485e-09, -4.2329758799655433e-10,
    3.188113506649175e-11, -2.2361550188326843e-12, 1.467329847991085e-13, -9.044001985381747e-15,
    5.254813715470919e-16, -2.887426122284945e-17, 1.5047851875576326e-18, -7.457289282094359e-20,
    3.5225638098845336e-21,
)  # fmt: skip
"""Chebyshev series of erf(x)/x in x**2 over [0, 4], fitted to 40 digits."""
_FAR: Final = (
    0.5427416308736758, -0.027456541627010337, -0.005256099448393948, 0.0007739396325011416,
    2.609208681438293e-06, -1.6601192411763388e-05, 2.4179794695158714e-06, 7.310761646419786e-08,
    -9.093948871152924e-08, 1.5307873043283198e-08, 2.670644802933083e-10, -6.890191671935908e-10,
    1.4963131479427074e-10, -4.725535703039531e-12, -6.0962615680279004e-12, 1.8588028922899224e-12,
    -1.849823660189687e-13, -5.0778550852315736e-14, 2.54762716396539e-14, -4.617196181041473e-15,
    -1.4611445797403244e-16, 3.386681212933702e-16, -9.9652665467551e-17, 1.0146458191749293e-17,
)  # fmt: skip
"""Chebyshev series of x*exp(x**2)*erfc(x) in 1/x over [0, 0.5], fitted to 40 digits."""


def erf(xp: Any, x: Any) -> Any:
    """Return the error function of a real floating-point array.

    The relative error is below 4e-16 in float64. Narrower dtypes are computed in theirs.
    """
    size = xp.abs(x)
    near = x * _chebyshev(xp, _NEAR, xp.minimum(size * size, 4) / 2 - 1)
    inverse = 1 / xp.maximum(size, 2)
    tail = xp.exp(-xp.minimum(size * size, 80)) * inverse * _chebyshev(xp, _FAR, 4 * inverse - 1)
    return xp.where(size < 2, near, xp.sign(x) * (1 - tail))


def _chebyshev(xp: Any, coefficients: Sequence[float], u: Any) -> Any:
    """Sum a Chebyshev series on [-1, 1] by Clenshaw's recurrence."""
    first = second = xp.zeros_like(u)
    for c in coefficients[:0:-1]:
        first, second = 2 * u * first - second + c, first
    return u * first - second + coefficients[0]
