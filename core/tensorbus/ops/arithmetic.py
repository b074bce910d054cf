"""Arithmetic, extremes, signs and rounding."""

from __future__ import annotations

from typing import Any

from ..dtypes import COMPLEX, INEXACT, NUMERIC, REAL
from .comparison import equal, greater, less
from .elementwise import elementwise
from .op import Op
from .selection import where

add = elementwise("add", arity=2, dtypes=NUMERIC, vjp=lambda g: (g, g), doc="``x + y``.")
subtract = elementwise("subtract", arity=2, dtypes=NUMERIC, vjp=lambda g: (g, -g), doc="``x - y``.")
multiply = elementwise(
    "multiply", arity=2, dtypes=NUMERIC, vjp=lambda g, x, y: (g * conj(y), g * conj(x)), doc="``x * y``."
)
divide = elementwise(
    "divide", arity=2, dtypes=INEXACT,
    vjp=lambda g, out, y: (g / conj(y), -g * conj(out / y)), doc="``x / y``; integers give floats.",
)  # fmt: skip
floor_divide = elementwise(
    "floor_divide", arity=2, dtypes=REAL, vjp=lambda g: (None, None),
    doc="``x // y``, rounded down. An integer divided by zero gives 0.",
)  # fmt: skip
remainder = elementwise(
    "remainder", arity=2, dtypes=REAL, vjp=lambda g, x, y: (g, -g * floor_divide(x, y)),
    doc="``x % y``, with the sign of ``y``. An integer modulo zero gives 0.",
)  # fmt: skip
negative = elementwise("negative", dtypes=NUMERIC, vjp=lambda g: (-g,), doc="``-x``; unsigned integers wrap.")
abs = elementwise("abs", dtypes=REAL, vjp=lambda g, x: (g * sign(x),), doc="The magnitude of ``x``.")
sign: Op[...] = elementwise(
    "sign", dtypes=REAL, vjp=lambda g: (None,), doc="-1, 0 or 1 by the sign of ``x``; NaN stays NaN."
)
maximum = elementwise(
    "maximum", arity=2, dtypes=REAL,
    vjp=lambda g, x, y: (g * _share(x, y, greater), g * _share(y, x, greater)),
    doc="The larger of both; NaN if either is NaN. Equal operands share the gradient.",
)  # fmt: skip
minimum = elementwise(
    "minimum", arity=2, dtypes=REAL, vjp=lambda g, x, y: (g * _share(x, y, less), g * _share(y, x, less)),
    doc="The smaller of both; NaN if either is NaN. Equal operands share the gradient.",
)  # fmt: skip


def conj(x: Any) -> Any:
    """Return the complex conjugate; of a real tensor or scalar, the same number."""
    if not hasattr(x, "dtype"):
        return x.conjugate()
    return _conj(x) if x.dtype.is_complex else +x


_conj = elementwise("conj", dtypes=COMPLEX, vjp=lambda g: (conj(g),), doc="The complex conjugate.")


def _share(x: Any, y: Any, wins: Op[...]) -> Any:
    return where(wins(x, y), 1.0, where(equal(x, y), 0.5, 0.0))


floor = elementwise("floor", dtypes=REAL, vjp=lambda g: (None,), doc="Rounded down.")
ceil = elementwise("ceil", dtypes=REAL, vjp=lambda g: (None,), doc="Rounded up.")
trunc = elementwise("trunc", dtypes=REAL, vjp=lambda g: (None,), doc="Rounded towards zero.")
round = elementwise(
    "round", dtypes=REAL, vjp=lambda g: (None,), doc="Rounded to the nearest, halves to even."
)
