"""Activations and other elementwise composites that models use."""

from __future__ import annotations

import math
from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import BOOL, FLOATING, INEXACT, REAL, check_scalar
from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from ..fused_function import fuse_in_eager
from .arithmetic import abs, conj, maximum, minimum, real
from .comparison import equal, greater, greater_equal, isnan, less, less_equal, logical_and
from .family import elementwise
from .transcendental import erf, exp, expm1, log1p, tanh
from .where_cast import tensors, where, wide


def _sigmoid(x: Any) -> Any:
    if x.dtype.is_complex:  # by the power that does not overflow
        right = greater_equal(real(x), 0)
        power = exp(where(right, -x, x))
        return where(right, 1.0, power) / (1 + power)
    power = exp(-abs(x))
    return where(greater_equal(x, 0), 1.0, power) / (1 + power)


sigmoid = elementwise(
    "sigmoid", dtypes=INEXACT, decompose=wide(_sigmoid),
    vjp=lambda g, out: (g * conj(out * (1 - out)) if out.dtype.is_complex else g * out * (1 - out),),
    doc="The logistic function.",
)  # fmt: skip
relu = elementwise(
    "relu", dtypes=REAL, decompose=lambda x: maximum(x, 0),
    vjp=lambda g, out: (where(less_equal(out, 0), 0, g),), doc="``max(x, 0)``; its derivative at 0 is 0.",
)  # fmt: skip
silu = elementwise(
    "silu", dtypes=FLOATING, decompose=wide(lambda x: x * sigmoid(x)),
    vjp=lambda g, x: (wide(lambda g, x: g * sigmoid(x) * (1 + x * (1 - sigmoid(x))))(g, x),),
    doc="``x * sigmoid(x)``.",
)  # fmt: skip
softplus = elementwise(
    "softplus", dtypes=FLOATING, decompose=wide(lambda x: maximum(x, 0) + log1p(exp(-abs(x)))),
    vjp=lambda g, x: (g * sigmoid(x),), doc="``log(1 + exp(x))``, exact in its limits.",
)  # fmt: skip


def _gelu_erf_slope(x: Any) -> Any:
    bell = exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return 0.5 * (1 + erf(x * math.sqrt(0.5))) + x * bell


gelu_erf = elementwise(
    "gelu_erf", dtypes=FLOATING, decompose=wide(lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5)))),
    vjp=lambda g, x: (wide(lambda g, x: g * _gelu_erf_slope(x))(g, x),),
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
    decompose=wide(lambda x: 0.5 * x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))),
    vjp=lambda g, x: (wide(lambda g, x: g * _gelu_tanh_slope(x))(g, x),),
    doc="The Gaussian error linear unit by its tanh approximation (Hendrycks and Gimpel 2016).",
)  # fmt: skip
logaddexp = elementwise(
    "logaddexp", arity=2, dtypes=FLOATING,
    decompose=wide(
        lambda x, y: where(equal(x, y), x + math.log(2), maximum(x, y) + log1p(exp(-abs(x - y))))
    ),
    vjp=lambda g, x, y: (g * sigmoid(_gap(x, y)), g * sigmoid(_gap(y, x))), doc="``log(exp(x) + exp(y))``.",
)  # fmt: skip


def _gap(x: Any, y: Any) -> Any:
    """Return ``x - y``, which is 0 for equal infinities; equal numbers keep their derivatives of 1 and -1."""
    apart = x - y
    return where(logical_and(equal(x, y), isnan(apart)), 0.0, apart)


logaddexp2 = elementwise(
    "logaddexp2", arity=2, dtypes=FLOATING,
    decompose=wide(lambda x, y: maximum(x, y) + log1p(exp(-abs(_gap(x, y)) * math.log(2))) / math.log(2)),
    vjp=lambda g, x, y: (g * sigmoid(_gap(x, y) * math.log(2)), g * sigmoid(_gap(y, x) * math.log(2))),
    doc="``log2(2**x + 2**y)``.",
)  # fmt: skip
logsigmoid = elementwise(
    "logsigmoid", dtypes=FLOATING, decompose=wide(lambda x: minimum(x, 0) - log1p(exp(-abs(x)))),
    vjp=lambda g, x: (g * sigmoid(-x),), doc="``log(sigmoid(x))``, exact in its limits.",
)  # fmt: skip
softsign = elementwise(
    "softsign", dtypes=FLOATING, decompose=wide(lambda x: x / (1 + abs(x))),
    vjp=lambda g, x: (g / ((1 + abs(x)) * (1 + abs(x))),), doc="``x / (1 + abs(x))``.",
)  # fmt: skip
tanhshrink = elementwise(
    "tanhshrink", dtypes=FLOATING, decompose=wide(lambda x: x - tanh(x)),
    vjp=lambda g, x: (g * (tanh(x) * tanh(x)),), may_overwrite=("x",), doc="``x - tanh(x)``.",
)  # fmt: skip
mish = elementwise(
    "mish", dtypes=FLOATING, decompose=wide(lambda x: x * tanh(softplus(x))),
    doc="``x * tanh(softplus(x))`` (Misra 2019).",
)  # fmt: skip


def _elu(x: Any, alpha: Any) -> Any:
    """Return ELU; its exponential must not overflow where ELU is linear: the derivative would be NaN."""
    below = less_equal(x, 0)
    return where(below, alpha * expm1(where(below, x, 0.0)), x)


def _celu(x: Any, alpha: Any) -> Any:
    below = less_equal(x, 0)
    return where(below, alpha * expm1(where(below, x, 0.0) / alpha), x)


elu_op = elementwise(
    "elu", arity=2, dtypes=FLOATING, decompose=wide(lambda x, y: _elu(*tensors(x, y))),
    doc="``x`` above zero, ``y * expm1(x)`` below (Clevert, Unterthiner, Hochreiter 2016).",
)  # fmt: skip
celu_op = elementwise(
    "celu", domain=((-3, 3), (0.5, 2)), arity=2, dtypes=FLOATING,
    decompose=wide(lambda x, y: _celu(*tensors(x, y))),
    doc="``x`` above zero, ``y * expm1(x / y)`` below (Barron 2017).",
)  # fmt: skip
leaky_relu_op = elementwise(
    "leaky_relu", arity=2, dtypes=FLOATING, decompose=lambda x, y: _leaky(*tensors(x, y)),
    doc="``x`` above zero, ``x * y`` below.",
)  # fmt: skip


def _leaky(x: Any, slope: Any) -> Any:
    above = greater(x, 0)
    return where(above, x, slope * where(above, 0.0, x))


clamp_min = elementwise(
    "clamp_min", arity=2, dtypes=BOOL + REAL, decompose=lambda x, y: maximum(x, y),
    vjp=lambda g, x, y: (where(greater_equal(x, y), g, 0), where(less(x, y), g, 0)),
    doc="The larger of both, as a limit: where they are equal, ``x`` has the whole gradient.",
)  # fmt: skip
clamp_max = elementwise(
    "clamp_max", arity=2, dtypes=BOOL + REAL, decompose=lambda x, y: minimum(x, y),
    vjp=lambda g, x, y: (where(less_equal(x, y), g, 0), where(greater(x, y), g, 0)),
    doc="The smaller of both, as a limit: where they are equal, ``x`` has the whole gradient.",
)  # fmt: skip


def _hard(x: Any, low: Any, high: Any) -> Any:
    """Limit ``x``; at the limits themselves the derivative is 0."""
    return where(less_equal(x, low), low, where(greater_equal(x, high), high, x))


hardtanh_op = elementwise(
    "hardtanh", domain=((-3, 3), (-2, -1), (1, 2)), arity=3, dtypes=FLOATING,
    decompose=lambda x, y, z: _hard(*tensors(x, y, z)),
    doc="``x`` limited to ``[y, z]``; its derivative is 0 at the limits.",
)  # fmt: skip
hardsigmoid = elementwise(
    "hardsigmoid", dtypes=FLOATING, decompose=wide(lambda x: hardtanh_op(x + 3, 0.0, 6.0) / 6),
    vjp=lambda g, x: (where(greater(x, -3) & less(x, 3), g / 6, 0.0),),
    doc="``min(max(x + 3, 0), 6) / 6``.",
)  # fmt: skip
hardswish = elementwise(
    "hardswish", dtypes=FLOATING, decompose=wide(lambda x: x * (hardtanh_op(x + 3, 0.0, 6.0) / 6)),
    vjp=lambda g, x: (where(less_equal(x, -3), 0.0, where(less(x, 3), g * (x / 3 + 0.5), g)),),
    doc="``x * hardsigmoid(x)`` (Howard and others 2019).",
)  # fmt: skip
softshrink_op = elementwise(
    "softshrink", domain=((-3, 3), (0.1, 1)), arity=2, dtypes=FLOATING,
    decompose=lambda x, y: _soft(*tensors(x, y)),
    doc="``x`` moved towards zero by ``y``.",
)  # fmt: skip


def _soft(x: Any, width: Any) -> Any:
    inside = where(equal(x, x), 0.0, x)
    return where(greater(x, width), x - width, where(less(x, -width), x + width, inside))


hardshrink_op = elementwise(
    "hardshrink", domain=((-3, 3), (0.1, 1)), arity=2, dtypes=FLOATING,
    decompose=lambda x, y: _far_only(*tensors(x, y, x)),
    vjp=lambda g, x, y, wanted: (_far_only(x, y, g) if wanted[0] else None, None),
    doc="``x``, or 0 within ``y`` of zero.",
)  # fmt: skip


def _far_only(x: Any, width: Any, beyond: Any) -> Any:
    return where(less_equal(abs(x), width), 0.0, beyond)


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """Return ``x`` above zero, ``alpha * expm1(x)`` below (Clevert, Unterthiner, Hochreiter 2016)."""
    return elu_op(x, alpha)


def celu(x: Any, alpha: Any = 1.0) -> Any:
    """Return ``x`` above zero, ``alpha * expm1(x / alpha)`` below (Barron 2017)."""
    return celu_op(x, alpha)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@fuse_in_eager
def selu(x: Any) -> Any:
    """Return the self-normalizing exponential unit (Klambauer and others 2017)."""
    return elu_op(x, _SELU_ALPHA) * _SELU_SCALE


def leaky_relu(x: Any, negative_slope: Any = 0.01) -> Any:
    """Return ``x`` above zero, ``negative_slope * x`` below."""
    return leaky_relu_op(x, negative_slope)


@with_form
@fuse_in_eager
def prelu(input: Any, weight: Any) -> Any:
    """Return ``input`` above zero, ``weight * input`` below: one weight, or one for each channel (axis 1).

    He, Zhang, Ren, Sun 2015. Raises ``ShapeError`` for another number of weights.
    """
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.ndim > 1 or weight.size not in (1, channels):
        raise ShapeError(
            f"prelu: one weight or one for each of {channels} channels is needed, got shape {weight.shape}."
        )
    if weight.ndim and input.ndim != 1:
        weight = weight.reshape((weight.size, *(1,) * (input.ndim - 2)) if input.ndim else ())
    return leaky_relu_op(input, weight)


@fuse_in_eager
def relu6(x: Any) -> Any:
    """Return ``min(max(x, 0), 6)``."""
    return hardtanh(x, 0.0, 6.0)


@fuse_in_eager
def hardtanh(x: Any, min_val: Any = -1.0, max_val: Any = 1.0) -> Any:
    """Return ``x`` limited to ``[min_val, max_val]``, with a derivative of 0 at the limits.

    Integers stay integers; what limits have behind the point is cut off for them.
    """
    if x.dtype.is_integer and all(isinstance(limit, (int, float)) for limit in (min_val, max_val)):
        low, high = (None if math.isinf(limit) else int(limit) for limit in (min_val, max_val))
        return clip(x, low, high)
    return hardtanh_op(x, min_val, max_val)


@with_form
def hardshrink(input: Any, lambd: Any = 0.5) -> Any:
    """Return ``input``, or 0 where it is within ``lambd`` of zero."""
    return hardshrink_op(input, lambd)


@with_form
def softshrink(input: Any, lambd: Any = 0.5) -> Any:
    """Return ``input`` moved towards zero by ``lambd``, and 0 where it is nearer than that.

    Raises ``ArgumentError`` for a number below 0.
    """
    if isinstance(lambd, (int, float)) and not lambd >= 0:
        raise ArgumentError(f"softshrink: lambd must be >= 0, got {lambd!r}.")
    return softshrink_op(input, lambd)


@fuse_in_eager
def threshold(x: Any, threshold: Any, value: Any) -> Any:
    """Return ``x`` where it is above ``threshold`` or NaN, ``value`` elsewhere; integers stay integers."""
    if x.dtype.is_integer and isinstance(value, float):
        value = check_scalar("threshold", math.trunc(value) if math.isfinite(value) else value, x.dtype)
    return where(less_equal(x, threshold), value, x)


@with_form
@fuse_in_eager
def softplus_scaled(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Any:
    """Return ``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above ``threshold``."""
    scaled = x if beta == 1 else x * beta
    above = greater(scaled, threshold)
    smooth = softplus(where(above, 0.0, scaled))
    return where(above, x, smooth if beta == 1 else smooth / beta)


@with_form
@fuse_in_eager
def glu(input: Any, dim: int = -1) -> Any:
    """Return the first half of ``input`` along an axis times the sigmoid of the second.

    Dauphin and others 2017. Raises ``ShapeError`` for an axis of odd length.
    """
    axis = dim + input.ndim if dim < 0 else dim
    if not 0 <= axis < input.ndim or input.shape[axis] % 2:
        raise ShapeError(f"glu: an axis of even length is needed, got axis {dim} of shape {input.shape}.")
    half = input.shape[axis] // 2
    lead = (slice(None),) * axis
    return input[(*lead, slice(half))] * sigmoid(input[(*lead, slice(half, None))])


@with_form
def gelu(input: Any, approximate: str = "none") -> Any:
    """Return the Gaussian error linear unit of ``input``: exact, or ``approximate="tanh"``.

    >>> import tensorbus as tb
    >>> round(tb.gelu(tb.asarray(1.0)).item(), 4)
    0.8413
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}.")
    return gelu_tanh(input) if approximate == "tanh" else gelu_erf(input)


@with_form
@fuse_in_eager
def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """Return ``x`` limited to ``min`` from below and ``max`` from above; NaN stays NaN.

    Limits are numbers or tensors that broadcast with ``x``. At a limit ``x`` has the whole gradient.

    >>> import tensorbus as tb
    >>> tb.clip(tb.asarray([-2.0, 0.5, 2.0]), 0.0, 1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    if min is None and max is None:
        return +x
    if x.dtype.is_integer:  # limits beyond what it holds limit nothing
        lowest, highest = dt.integer_range(x.dtype)
        min = None if type(min) is int and min < lowest else min
        max = None if type(max) is int and max > highest else max
    low = +x if min is None else clamp_min(x, min)
    return low if max is None else clamp_max(low, max)
