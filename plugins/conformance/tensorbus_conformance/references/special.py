"""References of special functions and activations, many of them by mpmath to 40 digits."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from ..native import Array
from .elementwise import of, slowly
from .reference import Reference


def precisely(function: Callable[[Any], Any]) -> Callable[[float], float]:
    """Return a function of a float that is worked out to 40 digits; NaN where it has no value."""

    def compute(x: float) -> float:
        if math.isnan(x):
            return x
        with mpmath.workdps(40):
            try:
                value = function(mpmath.mpf(x))
            except (ValueError, ZeroDivisionError):
                return math.nan
        return float(value) if isinstance(value, mpmath.mpf) else math.nan

    return compute


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    return precisely(lambda v: mpmath.loggamma(v).real)(x)


def _digamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, -x)
    if x == math.inf:
        return x
    return math.nan if x < 0 and (math.isinf(x) or x == math.floor(x)) else precisely(mpmath.digamma)(x)


def _erfinv(x: float) -> float:
    if abs(x) >= 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    return precisely(mpmath.erfinv)(x)


def _angle(x: Array) -> Array:
    return np.where(np.isnan(x), x, np.where(x < 0, np.pi, 0.0)) if x.dtype.kind != "c" else np.angle(x)


def _xlogy(x: Array, y: Array) -> Array:
    return np.where(np.isnan(y), y, np.where(x == 0, 0.0, x * np.log(y)))


def _sinc_scale(x: Array) -> Any:
    """A sine is off by what its argument was rounded by, times its slope."""
    if x.dtype.kind != "c":
        return 1 + 0 * finite(x)
    return 1 + np.abs(np.cos(np.pi * np.where(np.isfinite(x), x, 0)))


def _sinc(x: Array) -> Array:
    turn = np.pi * np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, np.sin(turn) / turn)


def _logaddexp2(x: Array, y: Array) -> Array:
    """NumPy's sum of powers is NaN for two equal infinities."""
    return np.where(x == y, x + 1.0, np.logaddexp2(x, y))


def _ones(x: Array) -> Array:
    flat = [abs(int(v)).bit_count() for v in x.reshape(-1).tolist()]
    return np.array(flat, np.uint8).reshape(x.shape)


def _celu(x: Array, y: Array) -> Array:
    return np.where(x <= 0, y * np.expm1(x / y), x)


def _soft(x: Array, width: Array) -> Array:
    return np.where(x > width, x - width, np.where(x < -width, x + width, np.where(np.isnan(x), x, 0.0)))


def hard(x: Array, low: Any, high: Any) -> Array:
    """Return ``x`` within its limits; NaN stays."""
    return np.where(x <= low, low, np.where(x >= high, high, x))


def _six(x: Array) -> Array:
    return hard(x + 3, np.float64(0), np.float64(6)) / 6


def _bernoulli_loss(x: Array, y: Array) -> Array:
    return -(y * np.maximum(np.log(x), -100) + (1 - y) * np.maximum(np.log1p(-x), -100))


def finite(*xs: Array) -> Any:
    """Return the largest magnitude at each place, infinities and NaN left out."""
    return np.maximum.reduce([np.where(np.isfinite(x), np.abs(x), 0.0) for x in np.broadcast_arrays(*xs)])


def _one(*_: Array) -> float:
    return 1.0


REFERENCES: dict[str, Reference] = {
    "angle": of(_angle, 4), "frac": of(lambda x: x - np.trunc(x)),
    "lerp": of(
        lambda x, y, z: x + z * (y - x), 6, lambda x, y, z: (finite(x) + finite(y)) * (1 + finite(z))
    ),
    "bitwise_count": Reference(function=_ones),
    "erfc": of(slowly(math.erfc), 8), "erfinv": of(slowly(_erfinv), 8),
    "lgamma": of(slowly(_lgamma), 8, lambda x: np.where(x < 0, 1 + finite(x), 0.0)),
    "digamma": of(slowly(_digamma), 8, lambda x: np.where(x < 0, 1 + finite(x), 1.0)),
    "xlogy": of(_xlogy, 4), "entr": of(lambda x: np.where(x < 0, -np.inf, -_xlogy(x, x)), 4),
    "sinc": of(_sinc, 8, _sinc_scale),
    "logit": of(lambda x: np.log(x) - np.log1p(-x), 6, _one),
    "logaddexp2": of(_logaddexp2, 4, lambda x, y: np.maximum(finite(x, y), 1.0)),
    "logsigmoid": of(lambda x: -np.logaddexp(0, -x), 5), "softsign": of(lambda x: x / (1 + np.abs(x)), 4),
    "tanhshrink": of(lambda x: x - np.tanh(x), 4, finite),
    "mish": of(lambda x: x * np.tanh(np.logaddexp(x, 0)), 8),
    "elu": of(lambda x, y: np.where(x <= 0, y * np.expm1(x), x), 4),
    "celu": of(_celu, 6, lambda x, y: finite(_celu(x, y)) * (1 + finite(x / y))),
    "leaky_relu": of(lambda x, y: np.where(x > 0, x, x * y), 1),
    "hardtanh": Reference(function=hard), "hardsigmoid": of(_six, 4, _one),
    "hardswish": of(lambda x: x * _six(x), 4, finite), "softshrink": of(_soft, 1),
    "hardshrink": Reference(function=lambda x, y: np.where(np.abs(x) <= y, 0.0, x)),
    "silu": of(lambda x: x * np.exp(-np.logaddexp(0, -x)), 6),
    "bernoulli_loss": of(_bernoulli_loss, 8, lambda x, y: 100 * np.maximum(finite(y), 1.0)),
}  # fmt: skip
