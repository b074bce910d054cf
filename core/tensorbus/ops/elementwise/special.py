"""Special functions as composites: error functions, gamma functions, and products that forgive zeros.

Each is defined on the whole real line, limits, poles and NaN included, and within a few units in the last
place of its dtype; narrow dtypes are computed in float32. Series were fitted to 50 digits for this module.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import FLOATING, INEXACT
from ..call_errors import with_form
from ..definition import Op
from .activation import clip
from .arithmetic import abs, conj, maximum, minimum, round
from .comparison import equal, less, less_equal, not_equal
from .family import elementwise
from .transcendental import cos, erf, exp, log, log1p, sin, sqrt
from .where_cast import tensors, where, wide

ERFC: Final = (
    0.4869974896593381, 0.24101444861760662, 0.03917158019801934, 0.0028202013162589696,
    -0.0003190025880142985, -7.762458294633769e-05, 3.904758903066749e-06, 2.10650100538356e-06,
    -1.1719156145292982e-07, -6.458612977687303e-08, 6.547928118976531e-09, 2.0176470623078224e-09,
    -3.982401175873017e-10, -4.9761436210290495e-11, 2.213944839159887e-11, -1.7358623528113927e-13,
    -1.026209787629388e-12, 1.4448991184132368e-13, 3.158980053643002e-14, -1.2428959971894012e-14,
    3.0295830930074995e-16, 6.422214347909852e-16, -1.3294242674635553e-16, -1.2796905792827282e-17,
    1.0532288760211047e-17,
)  # fmt: skip
"""exp(x**2) * erfc(x) / t, where t = 2 / (2 + x), in t over [0, 0.8]."""
INVERSE_NEAR: Final = (
    1.6304220989459326, 0.7315674456742257, -0.021235032142504585, -0.0065808875424494635,
    0.0019488711426908524, -0.00014158343386374536, -4.9292864636180004e-05, 1.4752887929042498e-05,
    -6.111918603258194e-07, -5.106997335480761e-07, 1.159027723297735e-07, 1.4907998843194937e-09,
    -5.244776785530681e-09, 8.51790549109762e-10, 7.917020592973908e-11, -5.0994281737154326e-11,
    5.436227530231317e-12, 1.292282189751795e-12, -4.656064719044143e-13, 2.4256976317675218e-14,
    1.6403697972051414e-14, -3.94956069090147e-15, -3.9036001761416307e-17, 1.83129083527959e-16,
    -3.03580260263594e-17,
)  # fmt: skip
"""erfinv(y) / y in w = -log(1 - y**2) over [0, 6.25]."""
INVERSE_FAR: Final = (
    4.1954237429470655, 1.8648217143837575, 0.0027302459307598863, -0.0016088293717105107,
    0.0006172890107450291, -0.00023721339833573046, 9.539241896432504e-05, -3.7450906721177194e-05,
    1.306810954509415e-05, -3.6000185096955093e-06, 5.556589283976713e-07, 1.156476645508997e-07,
    -1.2837675410011312e-07, 5.397687544325134e-08, -1.2924187026533667e-08, 4.687906799390999e-10,
    1.1252293206298812e-09, -5.597728405108042e-10, 1.389832082394821e-10, -7.93362680220409e-12,
    -9.003784812492528e-12, 4.361644121374151e-12, -1.0243728434578055e-12, 7.015975164254585e-14,
    4.7013804003053324e-14, -2.318375531516538e-14, 6.086396514411489e-15, -1.0065722473317836e-15,
)  # fmt: skip
"""erfinv(y) / y in sqrt(w) over [2.5, 6.2]."""
_LGAMMA: Final = (
    0.5189402136218837, -0.11067433480196873, 0.0170847143659176, -0.003058125320224664,
    0.0005907368318095997, -0.00011936252773356441, 2.4831699364863964e-05, -5.271760057091129e-06,
    1.1360144563809115e-06, -2.476230302428647e-07, 5.447042772244693e-08, -1.207182983178321e-08,
    2.692142481128988e-09, -6.035769066454788e-10, 1.3594457167564165e-10, -3.074212900083501e-11,
    6.976595270991192e-12, -1.5882564293696409e-12, 3.6259560513094906e-13, -8.299045960362688e-14,
    1.9038544604202833e-14, -4.376728293730088e-15, 1.0080861073000205e-15, -2.3259987709395164e-16,
    5.3755742727579123e-17,
)  # fmt: skip
"""lgamma(x) / ((x - 1) * (x - 2)) in x over [0.75, 2]."""


def chebyshev(coefficients: Sequence[float], x: Any, low: float, high: float) -> Any:
    """Sum a Chebyshev series on ``[low, high]`` by Clenshaw's recurrence, to the precision of ``x``."""
    least = 2.0**-55 if x.dtype is dt.float64 else 2.0**-27
    terms = [c for c in coefficients if math.fabs(c) > least]
    u = x * (4 / (high - low)) - 2 * (high + low) / (high - low)
    first: Any = terms[-1]
    second: Any = 0.0
    for c in terms[-2:0:-1]:
        first, second = u * first - second + c, first
    return 0.5 * (u * first) - second + terms[0]


def _erfc(x: Any) -> Any:
    size = maximum(abs(x), 0.5)
    part = round(size * 16) * 0.0625  # its square is exact, so that exp sees no rounded square
    rest = where(less(size, 64), (size - part) * (size + part), 0.0)
    t = 2 / (2 + size)
    tail = exp(-minimum(part * part, 1e4)) * exp(-rest) * (t * chebyshev(ERFC, t, 0.0, 0.8))
    near = less(x, 0.5)
    return where(near, where(less(x, -0.5), 2 - tail, 1 - erf(where(near, x, 0.0))), tail)


erfc = elementwise(
    "erfc", domain=(-3, 3), dtypes=FLOATING, decompose=wide(_erfc),
    vjp=lambda g, x: (g * (-2 / math.sqrt(math.pi)) * exp(-x * x),),
    doc="``1 - erf(x)``, precise where it is small.",
)  # fmt: skip


def _erfinv(x: Any) -> Any:
    inside = less(abs(x), 1)
    y = where(inside, x, 0.0)
    w = -(log1p(-y) + log1p(y))
    near = chebyshev(INVERSE_NEAR, minimum(w, 6.25), 0.0, 6.25)
    far = chebyshev(INVERSE_FAR, sqrt(maximum(w, 6.25)), 2.5, 6.2)
    inverse = where(inside, y * where(less(w, 6.25), near, far), math.nan)
    return where(equal(x, 1), math.inf, where(equal(x, -1), -math.inf, inverse))


erfinv = elementwise(
    "erfinv", domain=(-0.95, 0.95), dtypes=FLOATING, decompose=wide(_erfinv),
    vjp=lambda g, out: (g * (math.sqrt(math.pi) / 2) * exp(out * out),), may_overwrite=("out",),
    doc="The inverse of ``erf``: infinite at -1 and 1, NaN outside.",
)  # fmt: skip

_STIRLING: Final = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_BERNOULLI: Final = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_ASYMPTOTIC_FROM: Final = 8
"""From where on the asymptotic series are precise."""


def _asymptotic(coefficients: Sequence[float], inverse: Any) -> Any:
    square = inverse * inverse
    total: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * square + c
    return total


def _lgamma_positive(x: Any) -> Any:
    """Return it for ``x >= 0``: by Stirling's series, or by the recurrence from the interval [0.75, 2)."""
    large = maximum(x, float(_ASYMPTOTIC_FROM))
    finite = minimum(large, dt.largest(x.dtype))
    inverse = 1 / finite
    far = (finite - 0.5) * (log(finite) - 1) + (math.log(2 * math.pi) - 1) / 2
    far = far + inverse * _asymptotic(_STIRLING, inverse)
    low = less(x, 0.75)
    tiny = where(low, x, 1.0)
    base: Any = where(low, 1 + tiny, minimum(x, float(_ASYMPTOTIC_FROM)))
    product: Any = 1.0
    for _ in range(_ASYMPTOTIC_FROM - 1):
        above = less_equal(2.0, base)
        base = where(above, base - 1, base)
        product = product * where(above, base, 1.0)
    near = (base - 1) * (base - 2) * chebyshev(_LGAMMA, base, 0.75, 2.0) + log(product) - log(tiny)
    return where(less(x, float(_ASYMPTOTIC_FROM)), near, where(equal(x, math.inf), x, far))


def _lgamma(x: Any) -> Any:
    size = abs(x)
    negative = less(x, 0)
    place = where(negative & less(size, 2.0**52), size - round(size), 0.5)
    wave = abs(sin(math.pi * place))
    pole = negative & (equal(wave, 0) | less_equal(2.0**52, size))
    above = _lgamma_positive(where(negative & equal(size, math.inf), 1.0, size))
    mirrored = math.log(math.pi) - log(where(negative, size, 1.0)) - log(where(pole, 1.0, wave)) - above
    return where(pole, math.inf, where(negative, mirrored, above))


def _digamma(x: Any) -> Any:
    mirror = less(x, 0)
    start = where(mirror, 1 - x, x)
    moved = where(equal(start, 0), 1.0, start)
    steps: Any = 0.0
    for k in range(_ASYMPTOTIC_FROM):
        steps = steps + 1 / (moved + k)
    far = moved + _ASYMPTOTIC_FROM
    inverse = 1 / far
    above = log(far) - 0.5 * inverse - inverse * inverse * _asymptotic(_BERNOULLI, inverse) - steps
    place = x - round(x)
    pole = mirror & equal(place, 0)
    angle = math.pi * where(mirror & not_equal(place, 0), place, 0.5)
    below = above - math.pi * cos(angle) / sin(angle)
    value = where(pole, math.nan, where(mirror, below, above))
    value = where(equal(x, math.inf), math.inf, where(equal(x, -math.inf), math.nan, value))
    return where(equal(x, 0), -1 / where(equal(x, 0), x, 1.0), value)


digamma: Op[...] = elementwise(
    "digamma", domain=(0.3, 6), dtypes=FLOATING, decompose=wide(_digamma),
    doc="The derivative of ``lgamma``; NaN at negative integers, infinite at zeros.",
)  # fmt: skip
lgamma = elementwise(
    "lgamma", domain=(0.3, 6), dtypes=FLOATING, decompose=wide(_lgamma), vjp=lambda g, x: (g * digamma(x),),
    doc="The logarithm of the magnitude of the gamma function; infinite at 0 and negative integers.",
)  # fmt: skip


def _xlogy(x: Any, y: Any) -> Any:
    x, y = tensors(x, y)
    return where(not_equal(y, y), y, where(equal(x, 0), 0.0, x * log(y)))


xlogy = elementwise(
    "xlogy", domain=(None, (0.2, 5)), arity=2, dtypes=FLOATING, decompose=_xlogy,
    vjp=lambda g, x, y: (g * where(*_safe_log(x, y)), g * x / y),
    doc="``x * log(y)``, and 0 where ``x`` is 0 unless ``y`` is NaN.",
)  # fmt: skip
entr = elementwise(
    "entr", domain=(0.1, 3), dtypes=FLOATING, method=False,
    decompose=lambda x: where(less(x, 0), -math.inf, -xlogy(x, x)),
    vjp=lambda g, x: (-g * (log(x) + 1),), doc="The entropy ``-x * log(x)``: 0 at 0, -inf below.",
)  # fmt: skip


def _safe_log(x: Any, y: Any) -> tuple[Any, Any, Any]:
    x, y = tensors(x, y)
    return equal(x, 0) & less_equal(y, 0), 0.0, log(y)


def _sinc(x: Any) -> Any:
    still = equal(x, 0)
    turn = math.pi * where(still, 1.0, x)
    return where(still, 1.0, sin(turn) / turn)


sinc = elementwise(
    "sinc", dtypes=INEXACT, decompose=wide(_sinc), vjp=lambda g, out, x: (g * conj(_sinc_slope(out, x)),),
    may_overwrite=("out",), doc="``sin(pi * x) / (pi * x)``, and 1 at 0.",
)  # fmt: skip


def _sinc_slope(out: Any, x: Any) -> Any:
    still = equal(x, 0)
    away = where(still, 1.0, x)
    return where(still, -(math.pi**2) / 3 * x, (cos(math.pi * away) - out) / away)


@with_form
def logit(x: Any, /, eps: float | None = None) -> Any:
    """Return ``log(x / (1 - x))``, the inverse of ``sigmoid``; ``x`` is first kept ``eps`` away from 0 and 1.

    >>> import tensorbus as tb
    >>> tb.logit(tb.asarray([0.5, 1.0])).tolist()
    [0.0, inf]
    """
    if eps is not None:
        x = clip(x, eps, 1 - eps)
    return _logit(x)


_logit = elementwise(
    "logit", domain=(0.1, 0.9), dtypes=FLOATING, decompose=wide(lambda x: _log_odds(x)),
    vjp=lambda g, x: (where(less(x, 0) | less(1 - x, 0), math.nan, g / (x * (1 - x))),),
    doc="``log(x / (1 - x))``.",
)  # fmt: skip


def _log_odds(x: Any) -> Any:
    """Return the log odds; near one half by ``log1p``, which keeps the difference from it."""
    middle = less(abs(x - 0.5), 0.25)
    near = where(middle, x, 0.5)
    return where(middle, log1p((2 * near - 1) / (1 - near)), log(x / (1 - x)))


def _log_pair(chance: Any) -> tuple[Any, Any]:
    """Return both logarithms, which stop at -100: a certain and wrong prediction has a finite loss."""
    return maximum(log(chance), -100.0), maximum(log1p(-chance), -100.0)


def _bernoulli(x: Any, y: Any) -> Any:
    chance, target = tensors(x, y)
    hit, miss = _log_pair(chance)
    return -(target * hit + (1 - target) * miss)


def _bernoulli_vjp(g: Any, x: Any, y: Any) -> tuple[Any, ...]:
    chance, target = tensors(x, y)
    hit, miss = _log_pair(chance)
    return g * (chance - target) / maximum((1 - chance) * chance, 1e-12), g * (miss - hit)


bernoulli_loss = elementwise(
    "bernoulli_loss", method=False, arity=2, dtypes=FLOATING, decompose=wide(_bernoulli), vjp=_bernoulli_vjp,
    domain=(0.1, 0.9),
    doc="The negative log likelihood of ``y`` in [0, 1] under the probability ``x``; logs end at -100.",
)  # fmt: skip
