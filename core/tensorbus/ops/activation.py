"""Activations and other elementwise composites that models use."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..dtypes import FLOATING, REAL, DType
from ..errors import DtypeError
from .arithmetic import abs, maximum, minimum
from .comparison import equal, greater, greater_equal
from .elementwise import elementwise
from .selection import narrowed, where, widened
from .transcendental import erf, exp, log1p, tanh


def _wide(decompose: Callable[..., Any]) -> Callable[..., Any]:
    """Compute narrow dtypes in float32, rounding once at the end."""

    def decomposition(*xs: Any) -> Any:
        dtype: DType = next(x.dtype for x in xs if hasattr(x, "dtype"))
        return narrowed(decompose(*map(widened, xs)), dtype)

    return decomposition


def _sigmoid(x: Any) -> Any:
    power = exp(-abs(x))
    return where(greater_equal(x, 0), 1.0, power) / (1 + power)


sigmoid = elementwise(
    "sigmoid", dtypes=FLOATING, decompose=_wide(_sigmoid),
    vjp=lambda g, out: (g * out * (1 - out),), doc="The logistic function.",
)  # fmt: skip
relu = elementwise(
    "relu", dtypes=REAL, decompose=lambda x: maximum(x, 0),
    vjp=lambda g, out: (where(greater(out, 0), g, 0),), doc="``max(x, 0)``; its derivative at 0 is 0.",
)  # fmt: skip
silu = elementwise(
    "silu", dtypes=FLOATING, decompose=_wide(lambda x: x * sigmoid(x)),
    vjp=lambda g, x: (g * sigmoid(x) * (1 + x * (1 - sigmoid(x))),), doc="``x * sigmoid(x)``.",
)  # fmt: skip
softplus = elementwise(
    "softplus", dtypes=FLOATING, decompose=_wide(lambda x: maximum(x, 0) + log1p(exp(-abs(x)))),
    vjp=lambda g, x: (g * sigmoid(x),), doc="``log(1 + exp(x))``, exact in its limits.",
)  # fmt: skip
gelu_erf = elementwise(
    "gelu_erf", dtypes=FLOATING, decompose=_wide(lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5)))),
    vjp=lambda g, x: (
        g * (0.5 * (1 + erf(x * math.sqrt(0.5))) + x * exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))),
    ),
    doc="The Gaussian error linear unit, exact (Hendrycks and Gimpel 2016).",
)  # fmt: skip


def _gelu_tanh_slope(x: Any) -> Any:
    """Return the derivative; far out, where tanh is flat, its second term is 0 and not 0 times infinity."""
    share = tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    flat = 1 - share * share
    bend = 0.5 * math.sqrt(2 / math.pi) * x * flat * (1 + 3 * 0.044715 * x * x)
    return 0.5 * (1 + share) + where(equal(flat, 0), 0.0, bend)


gelu_tanh = elementwise(
    "gelu_tanh", dtypes=FLOATING,
    decompose=_wide(lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))),
    vjp=lambda g, x: (g * _gelu_tanh_slope(x),),
    doc="The Gaussian error linear unit by its tanh approximation (Hendrycks and Gimpel 2016).",
)  # fmt: skip
logaddexp = elementwise(
    "logaddexp", arity=2, dtypes=FLOATING,
    decompose=_wide(
        lambda x, y: where(equal(x, y), x + math.log(2), maximum(x, y) + log1p(exp(-abs(x - y))))
    ),
    vjp=lambda g, x, y: (g * sigmoid(_gap(x, y)), g * sigmoid(_gap(y, x))), doc="``log(exp(x) + exp(y))``.",
)  # fmt: skip


def _gap(x: Any, y: Any) -> Any:
    """Return ``x - y``, which is 0 for equal infinities."""
    return where(equal(x, y), 0.0, x - y)


def gelu(x: Any, /, approximate: str = "none") -> Any:
    """Return the Gaussian error linear unit of ``x``: exact, or ``approximate="tanh"``.

    >>> import tensorbus as tb
    >>> round(tb.gelu(tb.asarray(1.0)).item(), 4)
    0.8413
    """
    if approximate not in ("none", "tanh"):
        raise DtypeError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}.")
    return gelu_tanh(x) if approximate == "tanh" else gelu_erf(x)


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Return ``x`` limited to ``min`` from below and ``max`` from above; NaN stays NaN."""
    if min is None and max is None:
        return +x
    low = x if min is None else maximum(x, min)
    return low if max is None else minimum(low, max)
