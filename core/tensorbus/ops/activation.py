"""Activations and other elementwise composites that models use."""

from __future__ import annotations

import math
from typing import Any

from ..dtypes import FLOATING, REAL
from ..errors import DtypeError
from .arithmetic import abs, maximum, minimum
from .comparison import equal, greater, greater_equal
from .elementwise import elementwise
from .selection import where
from .transcendental import erf, exp, log1p, tanh

sigmoid = elementwise(
    "sigmoid", dtypes=FLOATING, decompose=lambda x: where(greater_equal(x, 0), 1.0, exp(-abs(x))) / (1 + exp(-abs(x))),
    vjp=lambda g, out: (g * out * (1 - out),), doc="The logistic function.",
)  # fmt: skip
relu = elementwise(
    "relu", dtypes=REAL, decompose=lambda x: maximum(x, 0),
    vjp=lambda g, out: (where(greater(out, 0), g, 0),), doc="``max(x, 0)``; its derivative at 0 is 0.",
)  # fmt: skip
silu = elementwise(
    "silu", dtypes=FLOATING, decompose=lambda x: x * sigmoid(x),
    vjp=lambda g, x: (g * sigmoid(x) * (1 + x * (1 - sigmoid(x))),), doc="``x * sigmoid(x)``.",
)  # fmt: skip
softplus = elementwise(
    "softplus", dtypes=FLOATING, decompose=lambda x: maximum(x, 0) + log1p(exp(-abs(x))),
    vjp=lambda g, x: (g * sigmoid(x),), doc="``log(1 + exp(x))``, exact in its limits.",
)  # fmt: skip
gelu_erf = elementwise(
    "gelu_erf", dtypes=FLOATING, decompose=lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))),
    vjp=lambda g, x: (
        g * (0.5 * (1 + erf(x * math.sqrt(0.5))) + x * exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))),
    ),
    doc="The Gaussian error linear unit, exact (Hendrycks and Gimpel 2016).",
)  # fmt: skip
gelu_tanh = elementwise(
    "gelu_tanh", dtypes=FLOATING,
    decompose=lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    doc="The Gaussian error linear unit by its tanh approximation (Hendrycks and Gimpel 2016).",
)  # fmt: skip
logaddexp = elementwise(
    "logaddexp", arity=2, dtypes=FLOATING,
    decompose=lambda x, y: where(equal(x, y), x + math.log(2), maximum(x, y) + log1p(exp(-abs(x - y)))),
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
