"""References of the elementwise ops. Integers are worked out in Python's, and wrapped: NumPy is not asked."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tensorbus.dtypes import definition as dt

from ..native import Array
from .reference import Reference


def wrapped(function: Callable[..., int], *xs: Array) -> Array:
    """Apply ``function`` to Python integers and wrap the results to the operands' dtype."""
    info = np.iinfo(xs[0].dtype)
    span = int(info.max) - int(info.min) + 1
    every = np.broadcast_arrays(*xs)
    flat = [
        (int(function(*map(int, row))) - int(info.min)) % span + int(info.min)
        for row in zip(*(x.reshape(-1).tolist() for x in every), strict=True)
    ]
    return np.array(flat, dtype=xs[0].dtype).reshape(every[0].shape)


def either(
    on_floats: Callable[..., Any], on_integers: Callable[..., int] | None = None
) -> Callable[..., Any]:
    """Return a reference that treats integers apart."""

    def reference(*xs: Array) -> Any:
        return wrapped(on_integers or on_floats, *xs) if xs[0].dtype.kind in "iu" else on_floats(*xs)

    return reference


def slowly(function: Callable[..., Any]) -> Callable[..., Array]:
    """Return a reference that applies ``function`` to the Python numbers of each place."""

    def reference(*xs: Array) -> Array:
        every = np.broadcast_arrays(*xs)
        rows = zip(*(x.reshape(-1).tolist() for x in every), strict=True)
        kind = np.complex128 if xs[0].dtype.kind == "c" else np.float64
        return np.array([kind(function(*row)) for row in rows], kind).reshape(every[0].shape)

    return reference


def _bits(x: Array) -> int:
    return 8 * x.dtype.itemsize


def _left(x: Array, y: Array) -> Array:
    return wrapped(lambda a, b: a << b if 0 <= b < _bits(x) else 0, x, y)


def _right(x: Array, y: Array) -> Array:
    return wrapped(lambda a, b: a >> (min(b, _bits(x)) if b >= 0 else _bits(x)), x, y)


def _integer_power(x: int, y: int) -> int:
    if y >= 0:
        return pow(x, y, 1 << 64) if x >= 0 else pow(x % (1 << 64), y, 1 << 64)
    return 1 if x == 1 else 1 - 2 * (y % 2) if x == -1 else 0


def _sign(x: Array) -> Array:
    if x.dtype.kind == "c":
        return np.where(x == 0, 0, x / np.where(x == 0, 1, np.abs(x)))
    if x.dtype.kind == "b":
        return x
    return np.where(np.isnan(x), x, (x > 0).astype(np.float64) - (x < 0))


def _logaddexp(x: Array, y: Array) -> Array:
    return np.where(x == y, x + math.log(2), np.logaddexp(x, y))


def _sigmoid(x: Array) -> Array:
    if x.dtype.kind == "c":
        power = np.exp(np.where(x.real >= 0, -x, x))
        return np.where(x.real >= 0, 1, power) / (1 + power)
    return np.exp(-np.logaddexp(0, -x))


def _exp2(x: Array) -> Array:
    return 2.0**x if x.dtype.kind == "c" else np.exp2(x)


def _exp2_scale(x: Array) -> Any:
    return _power_scale(np.asarray(2.0, x.dtype), x)


def _gelu(x: float) -> float:
    return 0.5 * x * math.erfc(-x * math.sqrt(0.5))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _integer_rest(x: int, y: int) -> int:
    return 0 if y == 0 else (abs(x) % abs(y)) * (1 if x >= 0 else -1)


def _parts(x: Array, y: Array) -> Array:
    out = np.zeros(np.broadcast_shapes(x.shape, y.shape), np.complex128)
    out.real, out.imag = x, y
    return out


def _floor_divide(x: Array, y: Array) -> Array:
    """Treat infinities as the array API standard does: the quotient, rounded down."""
    return np.where(np.isfinite(x) & np.isfinite(y), np.floor_divide(x, y), np.floor(x / y))


def _power_scale(x: Array, y: Array) -> Any:
    """A complex power is ``exp(y * log(x))``: its error grows with the exponent."""
    return np.abs(x**y) * (1 + np.abs(y * np.log(x))) if x.dtype.kind == "c" else 0.0


def _complex_part(x: Array) -> Any:
    """The real part of a complex logarithm loses its digits next to the circle where it is zero."""
    return 1.0 if x.dtype.kind == "c" else 0.0


def _magnitude(*xs: Array) -> Any:
    return np.maximum.reduce([np.abs(x) for x in np.broadcast_arrays(*xs)])


def _complex_size(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a complex result is as exact as the result is large."""

    def scale(*xs: Array) -> Any:
        if xs[0].dtype.kind != "c":
            return 0.0
        size = np.abs(function(*xs))
        return np.where(np.isfinite(size), size, 0.0)

    return scale


def of(function: Callable[..., Any], ulps: float = 0.0, scale: Callable[..., Any] | None = None) -> Reference:
    """Return a reference; without a ``scale`` the parts of complex results are measured by their size."""
    return Reference(function=function, ulps=ulps, scale=scale or _complex_size(function))


_PLAIN: dict[str, Callable[..., Any]] = {
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "isnan": np.isnan, "isinf": np.isinf,
    "isfinite": np.isfinite, "signbit": np.signbit, "logical_and": operator.and_, "logical_or": operator.or_,
    "logical_xor": operator.xor, "logical_not": operator.invert, "bitwise_and": operator.and_,
    "bitwise_or": operator.or_, "bitwise_xor": operator.xor, "bitwise_invert": operator.invert,
    "bitwise_left_shift": _left, "bitwise_right_shift": _right, "maximum": np.maximum, "minimum": np.minimum,
    "fmax": np.fmax, "fmin": np.fmin,
    "clamp_min": np.maximum, "clamp_max": np.minimum, "real": np.real, "imag": np.imag, "conj": np.conj,
    "floor": either(np.floor, lambda x: x), "ceil": either(np.ceil, lambda x: x),
    "trunc": either(np.trunc, lambda x: x), "round": either(np.round, lambda x: x),
    "relu": either(lambda x: np.maximum(x, 0), lambda x: max(x, 0)),
    "negative": either(operator.neg), "copysign": np.copysign,
}  # fmt: skip
"""What rounds nowhere."""

_INVERSE = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}

REFERENCES: dict[str, Reference] = {
    **{name: Reference(function=function) for name, function in _PLAIN.items()},
    "nextafter": Reference(function=np.nextafter, own=True),
    "where": Reference(function=np.where, exact=True),
    "complex": Reference(function=_parts),
    "add": of(either(operator.add), 1), "subtract": of(either(operator.sub), 1),
    "multiply": of(either(operator.mul), 1), "divide": of(operator.truediv, 2.5),
    "floor_divide": of(either(_floor_divide, lambda x, y: x // y if y else 0), 1),
    "remainder": of(
        either(np.remainder, lambda x, y: x % y if y else 0), 1,
        lambda x, y: np.where(np.isfinite(y), np.abs(y), 0),
    ),
    "abs": of(either(np.abs, abs), 2), "sign": of(either(_sign, lambda x: (x > 0) - (x < 0)), 2),
    "power": of(either(np.power, _integer_power), 16, _power_scale),
    "sqrt": of(np.sqrt, 3), "rsqrt": of(lambda x: 1 / np.sqrt(x), 4),
    "square": of(either(lambda x: x * x), 1), "reciprocal": of(lambda x: 1 / x, 2.5),
    "exp": of(np.exp, 3), "expm1": of(np.expm1, 3), "log": of(np.log, 3, _complex_part),
    "log1p": of(np.log1p, 3, _complex_part), "log2": of(np.log2, 3, _complex_part),
    "log10": of(np.log10, 4, _complex_part), "exp2": of(_exp2, 4, _exp2_scale), "cbrt": of(np.cbrt, 4),
    "deg2rad": of(np.deg2rad, 2), "rad2deg": of(np.rad2deg, 2),
    "sin": of(np.sin, 4), "cos": of(np.cos, 4), "tan": of(np.tan, 5), "atan": of(np.arctan, 5),
    **{name: of(function, 4 if name != "atanh" else 5) for name, function in _INVERSE.items()},
    "atan2": of(np.arctan2, 6), "sinh": of(np.sinh, 4), "cosh": of(np.cosh, 4), "tanh": of(np.tanh, 5),
    "hypot": of(np.hypot, 4), "erf": of(slowly(lambda x: math.erf(x)), 4), "sigmoid": of(_sigmoid, 5),
    "gcd": Reference(function=lambda x, y: wrapped(math.gcd, x, y)),
    "lcm": Reference(function=lambda x, y: wrapped(math.lcm, x, y)),
    "heaviside": of(lambda x, y: np.where(x == 0, y, (x > 0).astype(np.float64)), 0),
    "fmod": of(either(np.fmod, _integer_rest), 1),
    "softplus": of(lambda x: np.logaddexp(x, 0), 4),
    "gelu_erf": of(slowly(_gelu), 4, _magnitude), "gelu_tanh": of(_gelu_tanh, 6, _magnitude),
    "logaddexp": of(_logaddexp, 4, lambda x, y: np.maximum(_magnitude(x, y), 1.0)),
}  # fmt: skip

_SIGNED = """
    abs acos acosh add asin asinh atan atan2 atanh cast ceil copysign cos cosh divide exp expm1 floor
    floor_divide hypot log log10 log1p log2 multiply negative nextafter power reciprocal remainder round sin
    sinh sqrt subtract tan tanh trunc
""".split()
"""Of which the array API standard, or the arithmetic that it refers to, states the sign of a zero."""


def cast(x: Array, dtype: dt.DType) -> Any:
    """Return ``x`` as ``dtype`` holds it: floats become integers by truncation, saturating; NaN gives 0."""
    if dtype is dt.bool_:
        return x != 0
    if dtype.is_integer:
        low, high = dt.integer_range(dtype)
        values = [_integer(v, low, high) for v in x.reshape(-1).tolist()]
        return np.array(values, dtype=dtype.name).reshape(x.shape)
    return x.astype(np.complex128 if dtype.is_complex else np.float64)


def _integer(value: float, low: int, high: int) -> int:
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        return min(max(int(value) if math.isfinite(value) else (high if value > 0 else low), low), high)
    return (int(value) - low) % (high - low + 1) + low


REFERENCES["cast"] = Reference(function=cast, ulps=1)
REFERENCES.update({name: replace(REFERENCES[name], zeros=True) for name in _SIGNED})
