"""Powers, exponentials, roots, logarithms and trigonometry."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import FLOATING, INEXACT, NUMERIC
from .arithmetic import conj
from .comparison import equal, greater, less_equal
from .elementwise import elementwise
from .op import Op
from .selection import where


def _power_base(g: Any, x: Any, y: Any) -> Any:
    if _is_scalar(y):
        return g * conj(y * x ** (y - 1)) if y != 0 else g * 0
    return where(equal(y, 0), 0.0, g * conj(y * x ** (where(equal(y, 0), 1, y) - 1)))


def _power_exponent(g: Any, out: Any, x: Any, y: Any) -> Any:
    if _is_scalar(y):
        return None
    if _is_scalar(x):
        return g * conj(out * math.log(x)) if x > 0 else where(greater(y, 0), 0.0, g * math.nan)
    return g * conj(out * log(where(equal(x, 0) if x.dtype.is_complex else less_equal(x, 0), 1, x)))


def _is_scalar(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex))


power = elementwise(
    "power", arity=2, dtypes=NUMERIC,
    vjp=lambda g, out, x, y: (_power_base(g, x, y), _power_exponent(g, out, x, y)),
    doc="``x ** y``. Integers wrap; a negative exponent gives 0 except for the bases 1 and -1.",
)  # fmt: skip

sqrt = elementwise("sqrt", dtypes=INEXACT, vjp=lambda g, out: (g / conj(2 * out),), doc="The square root.")
rsqrt = elementwise(
    "rsqrt", dtypes=FLOATING, decompose=lambda x: 1 / sqrt(x),
    vjp=lambda g, out, x: (g * out / x * -0.5,), doc="The reciprocal square root.",
)  # fmt: skip
square = elementwise(
    "square", dtypes=NUMERIC, decompose=lambda x: x * x, vjp=lambda g, x: (g * conj(2 * x),), doc="``x * x``."
)
reciprocal = elementwise(
    "reciprocal", dtypes=INEXACT, decompose=lambda x: 1 / x,
    vjp=lambda g, out: (-g * conj(out * out),), doc="``1 / x``.",
)  # fmt: skip
exp = elementwise("exp", dtypes=INEXACT, vjp=lambda g, out: (g * conj(out),), doc="e to the power ``x``.")
expm1 = elementwise(
    "expm1", dtypes=INEXACT, vjp=lambda g, out: (g * conj(out + 1),), doc="``exp(x) - 1``, exact near 0."
)
log = elementwise("log", dtypes=INEXACT, vjp=lambda g, x: (g / conj(x),), doc="The natural logarithm.")
log1p = elementwise(
    "log1p", dtypes=INEXACT, vjp=lambda g, x: (g / conj(1 + x),), doc="``log(1 + x)``, exact near 0."
)
log2 = elementwise(
    "log2", dtypes=INEXACT, vjp=lambda g, x: (g / conj(x * math.log(2)),), doc="The logarithm to base 2."
)
log10 = elementwise(
    "log10", dtypes=INEXACT, decompose=lambda x: log(x) * (1 / math.log(10)),
    vjp=lambda g, x: (g / conj(x * math.log(10)),), doc="The logarithm to base 10.",
)  # fmt: skip
sin = elementwise("sin", dtypes=INEXACT, vjp=lambda g, x: (g * conj(cos(x)),), doc="The sine, of radians.")
cos: Op[...] = elementwise(
    "cos", dtypes=INEXACT, vjp=lambda g, x: (-g * conj(sin(x)),), doc="The cosine, of radians."
)
tan = elementwise(
    "tan", dtypes=INEXACT, vjp=lambda g, out: (g * conj(1 + out * out),), doc="The tangent, of radians."
)
asin = elementwise(
    "asin", dtypes=INEXACT, vjp=lambda g, x: (g / conj(sqrt(1 - x * x)),), doc="The inverse sine."
)
acos = elementwise(
    "acos", dtypes=INEXACT, vjp=lambda g, x: (-g / conj(sqrt(1 - x * x)),), doc="The inverse cosine."
)
atan = elementwise(
    "atan", dtypes=INEXACT, vjp=lambda g, x: (g / conj(1 + x * x),), doc="The inverse tangent."
)
atan2 = elementwise(
    "atan2", arity=2, dtypes=FLOATING,
    vjp=lambda g, x, y: (g * y / (x * x + y * y), -g * x / (x * x + y * y)),
    doc="The angle of the point ``(y, x)``: ``x`` is the ordinate.",
)  # fmt: skip
sinh = elementwise("sinh", dtypes=INEXACT, vjp=lambda g, x: (g * conj(cosh(x)),), doc="The hyperbolic sine.")
cosh: Op[...] = elementwise(
    "cosh", dtypes=INEXACT, vjp=lambda g, x: (g * conj(sinh(x)),), doc="The hyperbolic cosine."
)
tanh = elementwise(
    "tanh", dtypes=INEXACT, vjp=lambda g, out: (g * conj(1 - out * out),), doc="The hyperbolic tangent."
)
asinh = elementwise(
    "asinh", dtypes=INEXACT, vjp=lambda g, x: (g / conj(sqrt(x * x + 1)),), doc="The inverse of sinh."
)
acosh = elementwise(
    "acosh",
    dtypes=INEXACT,
    vjp=lambda g, x: (g / conj(sqrt(x - 1) * sqrt(x + 1)),),
    doc="The inverse of cosh.",
)
atanh = elementwise(
    "atanh", dtypes=INEXACT, vjp=lambda g, x: (g / conj(1 - x * x),), doc="The inverse of tanh."
)
erf = elementwise(
    "erf", dtypes=FLOATING, vjp=lambda g, x: (g * (2 / math.sqrt(math.pi)) * exp(-x * x),),
    doc="The error function.",
)  # fmt: skip
