"""Powers, exponentials, roots, logarithms and trigonometry."""

from __future__ import annotations

import cmath
import math
from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import FLOATING, INEXACT, NUMERIC
from ...errors import ArgumentError
from ...tracing.sym_number import SymNumber
from ..call_errors import with_form
from ..definition import Op, table
from .arithmetic import complex as from_parts
from .arithmetic import conj, imag, real
from .comparison import equal, greater_equal, isfinite
from .family import elementwise
from .where_cast import cast, where, wide


def _power_base(g: Any, x: Any, y: Any) -> Any:
    if _is_scalar(y):
        return g * conj(y * x ** (y - 1)) if y != 0 else g * 0
    return where(equal(y, 0), 0.0, g * conj(y * x ** (where(equal(y, 0), 1, y) - 1)))


def _power_exponent(g: Any, out: Any, x: Any, y: Any) -> Any:
    if _is_scalar(y):
        return None
    if _is_scalar(x):
        if isinstance(x, complex) and x != 0:
            return g * conj(out * cmath.log(x))
        if isinstance(x, complex):
            return g * 0
        if x == 0:
            return where(greater_equal(y, 0), 0.0, g * (out * -math.inf))
        return g * conj(out * (_log(x) if x > 0 else math.nan))
    still = equal(x, 0) if x.dtype.is_complex else equal(x, 0) & greater_equal(y, 0)
    return g * conj(out * log(where(still, 1, x)))


def _power_tangent(x: Any, y: Any, out: Any, x_t: Any, y_t: Any) -> Any:
    if out.dtype.is_complex:
        return NotImplemented
    base = None if x_t is None else _power_base(x_t, x, y)
    if y_t is None:
        return base
    exponent = _power_exponent(y_t, out, x, y)
    return exponent if base is None else base + exponent


def _is_scalar(x: Any) -> bool:
    return isinstance(x, (bool, int, float, complex, SymNumber))


def _log(x: Any) -> Any:
    return x.prologue.outcome(math.log, x) if type(x) is SymNumber else math.log(x)


def _check_power(x: Any, y: Any) -> None:
    """Raise ``ArgumentError`` for whole numbers to a negative power: that is no whole number."""
    if type(y) is int and y < 0 and not getattr(getattr(x, "dtype", None), "is_inexact", True):
        raise ArgumentError(
            f"power: {x.dtype} to the power {y} is no {x.dtype}; cast with .to(tensorbus.float32), or take"
            f" float_power(x, {y})."
        )


power = elementwise(
    "power", check=_check_power, autocast="wide", cost="function", domain=((0.2, 3), (-2, 3)), arity=2,
    dtypes=NUMERIC,
    vjp=lambda g, out, x, y: (_power_base(g, x, y), _power_exponent(g, out, x, y)), jvp=_power_tangent,
    doc="``x ** y``. Integers wrap; to a negative power they give 0 except for the bases 1 and -1, and an"
    " error where it is a number.",
)  # fmt: skip


@with_form
def float_power(x: Any, y: Any, /) -> Any:
    """Return ``x ** y`` in float64, or complex128 where either is complex. One of them may be a number.

    Raises ``UnsupportedDtypeError`` on a device without these dtypes.

    >>> import tensorbus as tb
    >>> tb.float_power(tb.asarray([1, 2, 3]), -1).tolist()[:2]
    [1.0, 0.5]
    """
    tensors = [z for z in (x, y) if hasattr(z, "dtype")]
    numbers = [z for z in (x, y) if not hasattr(z, "dtype")]
    is_complex = any(z.dtype.is_complex for z in tensors) or any(isinstance(z, complex) for z in numbers)
    kind = dt.complex128 if is_complex else dt.float64
    first, second = (cast(z, kind) if hasattr(z, "dtype") else z if is_complex else float(z) for z in (x, y))
    return power(first, second)


sqrt = elementwise(
    "sqrt", cost="function", domain=(0.1, 9), dtypes=INEXACT, vjp=lambda g, out: (g / conj(2 * out),),
    doc="The square root.",
)  # fmt: skip
rsqrt = elementwise(
    "rsqrt", cost="function", domain=(0.1, 9), dtypes=INEXACT, decompose=lambda x: 1 / sqrt(x),
    vjp=lambda g, out: (g * conj(out * out * out) * -0.5,),
    doc="The reciprocal square root.",
)  # fmt: skip
square = elementwise(
    "square", dtypes=NUMERIC, decompose=lambda x: x * x, vjp=lambda g, x: (g * conj(2 * x),), doc="``x * x``."
)
reciprocal = elementwise(
    "reciprocal", domain=(0.2, 5), dtypes=INEXACT, decompose=lambda x: 1 / x,
    vjp=lambda g, out: (-g * conj(out * out),), doc="``1 / x``.",
)  # fmt: skip
exp = elementwise(
    "exp",
    autocast="wide",
    cost="function",
    dtypes=INEXACT,
    vjp=lambda g, out: (g * conj(out),),
    doc="e to the power ``x``.",
)
expm1 = elementwise(
    "expm1",
    autocast="wide",
    cost="function",
    dtypes=INEXACT,
    vjp=lambda g, out: (g * conj(out + 1),),
    doc="``exp(x) - 1``, exact near 0.",
)
exp2 = elementwise(
    "exp2", dtypes=INEXACT, decompose=wide(lambda x: power(2.0, x)),
    vjp=lambda g, out: (g * conj(out) * math.log(2),), doc="2 to the power ``x``.",
)  # fmt: skip


def _cube_root(x: Any) -> Any:
    """A power is nearly right; one step of Newton's method makes it so."""
    usual = isfinite(x) & ~equal(x, 0)
    size = where(usual, table["abs"](x), 1.0)
    root = power(size, 1 / 3)
    return where(usual, table["sign"](x) * (root - (root - size / (root * root)) / 3), x)


cbrt = elementwise(
    "cbrt", domain=(0.2, 9), dtypes=FLOATING,
    decompose=wide(_cube_root), vjp=lambda g, out: (g / (3 * out * out),),
    doc="The cube root, negative for negative numbers.",
)  # fmt: skip
deg2rad = elementwise(
    "deg2rad", dtypes=FLOATING, decompose=wide(lambda x: x * (math.pi / 180)),
    vjp=lambda g: (g * (math.pi / 180),), doc="Degrees as radians.",
)  # fmt: skip
rad2deg = elementwise(
    "rad2deg", dtypes=FLOATING, decompose=wide(lambda x: x * (180 / math.pi)),
    vjp=lambda g: (g * (180 / math.pi),), doc="Radians as degrees.",
)  # fmt: skip
log = elementwise(
    "log", autocast="wide", cost="function", domain=(0.1, 9), dtypes=INEXACT, vjp=lambda g, x: (g / conj(x),),
    doc="The natural logarithm.",
)  # fmt: skip
log1p = elementwise(
    "log1p",
    autocast="wide",
    cost="function",
    domain=(-0.8, 5),
    dtypes=INEXACT,
    vjp=lambda g, x: (g / conj(1 + x),),
    doc="``log(1 + x)``, exact near 0.",
)
log2 = elementwise(
    "log2",
    autocast="wide",
    cost="function",
    domain=(0.1, 9),
    dtypes=INEXACT,
    vjp=lambda g, x: (g / conj(x * math.log(2)),),
    doc="The logarithm to base 2.",
)


def _times(x: Any, factor: float) -> Any:
    """Multiply each part of a complex number alone: an infinite one must not touch the other."""
    return from_parts(real(x) * factor, imag(x) * factor) if x.dtype.is_complex else x * factor


log10 = elementwise(
    "log10", autocast="wide", cost="function", domain=(0.1, 9), dtypes=INEXACT,
    decompose=lambda x: _times(log(x), 1 / math.log(10)),
    vjp=lambda g, x: (g / conj(x * math.log(10)),), doc="The logarithm to base 10.",
)  # fmt: skip
sin = elementwise(
    "sin", cost="function", dtypes=INEXACT, vjp=lambda g, x: (g * conj(cos(x)),), doc="The sine, of radians."
)
cos: Op[...] = elementwise(
    "cos",
    cost="function",
    dtypes=INEXACT,
    vjp=lambda g, x: (-g * conj(sin(x)),),
    doc="The cosine, of radians.",
)
tan = elementwise(
    "tan",
    cost="function",
    domain=(-1.3, 1.3),
    dtypes=INEXACT,
    vjp=lambda g, out: (g * conj(1 + out * out),),
    doc="The tangent, of radians.",
)
asin = elementwise(
    "asin",
    cost="function",
    domain=(-0.9, 0.9),
    dtypes=INEXACT,
    vjp=lambda g, x: (g / conj(sqrt(1 - x * x)),),
    doc="The inverse sine.",
)
acos = elementwise(
    "acos",
    cost="function",
    domain=(-0.9, 0.9),
    dtypes=INEXACT,
    vjp=lambda g, x: (-g / conj(sqrt(1 - x * x)),),
    doc="The inverse cosine.",
)
atan = elementwise(
    "atan",
    cost="function",
    dtypes=INEXACT,
    vjp=lambda g, x: (g / conj(1 + x * x),),
    doc="The inverse tangent.",
)


def _norm(x: Any, y: Any) -> Any:
    """Return the squared distance from the origin, where 1 stands for 0: the gradient there is 0."""
    square = x * x + y * y
    return where(equal(square, 0), 1.0, square)


atan2 = elementwise(
    "atan2", cost="function", arity=2, dtypes=FLOATING,
    vjp=lambda g, x, y: (g * y / _norm(x, y), -g * x / _norm(x, y)),
    doc="The angle of the point ``(y, x)``: ``x`` is the ordinate.",
)  # fmt: skip
sinh = elementwise(
    "sinh", cost="function", dtypes=INEXACT, vjp=lambda g, x: (g * conj(cosh(x)),), doc="The hyperbolic sine."
)
cosh: Op[...] = elementwise(
    "cosh",
    cost="function",
    dtypes=INEXACT,
    vjp=lambda g, x: (g * conj(sinh(x)),),
    doc="The hyperbolic cosine.",
)
tanh = elementwise(
    "tanh",
    cost="function",
    dtypes=INEXACT,
    vjp=lambda g, out: (g * conj(1 - out * out),),
    doc="The hyperbolic tangent.",
)
asinh = elementwise(
    "asinh",
    cost="function",
    dtypes=INEXACT,
    vjp=lambda g, x: (g / conj(sqrt(x * x + 1)),),
    doc="The inverse of sinh.",
)
acosh = elementwise(
    "acosh",
    cost="function",
    domain=(1.1, 9),
    dtypes=INEXACT,
    vjp=lambda g, x: (g / conj(sqrt(x - 1) * sqrt(x + 1)),),
    doc="The inverse of cosh.",
)
atanh = elementwise(
    "atanh",
    cost="function",
    domain=(-0.9, 0.9),
    dtypes=INEXACT,
    vjp=lambda g, x: (g / conj(1 - x * x),),
    doc="The inverse of tanh.",
)
erf = elementwise(
    "erf", cost="function", dtypes=FLOATING, vjp=lambda g, x: (g * (2 / math.sqrt(math.pi)) * exp(-x * x),),
    doc="The error function.",
)  # fmt: skip
