"""References of the elementwise ops. Integers are worked out in Python's, and wrapped: NumPy is not asked."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorbus as tb
from tensorbus import dtypes as dt
from tensorbus.dtypes import DType

from case import Case, Draw, Sample
from samples import Array, Kind, arrays, broadcastable


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


def slowly(function: Callable[[float], Any]) -> Callable[[Array], Array]:
    """Return a reference that applies ``function`` to each element."""
    return lambda x: np.array([float(function(v)) for v in x.reshape(-1).tolist()], np.float64).reshape(
        x.shape
    )


def case(
    reference: Callable[..., Any],
    arity: int = 1,
    kinds: Kind | tuple[Kind, ...] = "any",
    *,
    ulps: float = 1.0,
    **more: Any,
) -> Case:
    """Make the case of an op of ``arity`` operands of one dtype whose shapes broadcast."""
    each = (kinds,) * arity if isinstance(kinds, str) else kinds

    def samples(draw: Draw, dtype: DType) -> Sample:
        found = draw(broadcastable(arity))
        return Sample(tuple(draw(arrays(s, dtype, k)) for s, k in zip(found, each, strict=True)))

    return Case(samples=samples, reference=reference, ulps=ulps, **more)


def _to_bool(_: DType) -> DType:
    return dt.bool_


def _bits(x: Array) -> int:
    return 8 * x.dtype.itemsize


def _left(x: Array, y: Array) -> Array:
    return wrapped(lambda a, b: a << b if b < _bits(x) else 0, x, y)


def _right(x: Array, y: Array) -> Array:
    return wrapped(lambda a, b: a >> min(b, _bits(x)), x, y)


def _integer_power(x: int, y: int) -> int:
    if y >= 0:
        return pow(x, y, 1 << 64) if x >= 0 else pow(x % (1 << 64), y, 1 << 64)
    return 1 if x == 1 else 1 - 2 * (y % 2) if x == -1 else 0


def _sign(x: Array) -> Array:
    return np.where(np.isnan(x), x, (x > 0).astype(np.float64) - (x < 0))


def _logaddexp(x: Array, y: Array) -> Array:
    return np.where(x == y, x + math.log(2), np.logaddexp(x, y))


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))


def _gelu(x: float) -> float:
    return 0.5 * x * math.erfc(-x * math.sqrt(0.5))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _shift_samples(draw: Draw, dtype: DType) -> Sample:
    found = draw(broadcastable(2))
    y = draw(arrays(found[1], dtype))
    return Sample((draw(arrays(found[0], dtype)), np.where(y < 0, 5, y).astype(y.dtype)))


def _where_samples(draw: Draw, dtype: DType) -> Sample:
    found = draw(broadcastable(3))
    return Sample((draw(arrays(found[0], dt.bool_)), *(draw(arrays(s, dtype)) for s in found[1:])))


def _cast_samples(draw: Draw, dtype: DType) -> Sample:
    (found,) = draw(broadcastable(1))
    return Sample((draw(arrays(found, dtype)),))


def _power_samples(draw: Draw, dtype: DType) -> Sample:
    first, second = draw(broadcastable(2))
    x = draw(arrays(first, dtype, "any" if dtype.is_integer else "positive"))
    y = draw(arrays(second, dtype, "moderate"))
    return Sample((np.where(np.abs(x) < 0.1, 1, x).astype(x.dtype) if dtype.is_complex else x, y))


def _power_scale(x: Array, y: Array) -> Any:
    """A complex power is ``exp(y * log(x))``: its error grows with the exponent."""
    return np.abs(x**y) * (1 + np.abs(y * np.log(x))) if x.dtype.kind == "c" else 0.0


def _divided(x: int, y: int) -> int:
    return x // y if y else 0


def _complex_part(x: Array) -> Any:
    """The real part of a complex logarithm loses its digits next to the circle where it is zero."""
    return 1.0 if x.dtype.kind == "c" else 0.0


def _size(x: Array) -> Any:
    return np.abs(x)


ELEMENTWISE: dict[str, Case] = {
    **{name: case(getattr(operator, short), 2, result=_to_bool) for name, short in (
        ("equal", "eq"), ("not_equal", "ne"), ("less", "lt"), ("less_equal", "le"), ("greater", "gt"),
        ("greater_equal", "ge"))},
    **{name: case(getattr(np, name), result=_to_bool) for name in ("isnan", "isinf", "isfinite")},
    "logical_and": case(operator.and_, 2), "logical_or": case(operator.or_, 2),
    "logical_xor": case(operator.xor, 2), "logical_not": case(operator.invert),
    "bitwise_and": case(operator.and_, 2), "bitwise_or": case(operator.or_, 2),
    "bitwise_xor": case(operator.xor, 2), "bitwise_invert": case(operator.invert),
    "bitwise_left_shift": Case(samples=_shift_samples, reference=_left),
    "bitwise_right_shift": Case(samples=_shift_samples, reference=_right),
    "where": Case(samples=_where_samples, reference=np.where, exact=True),
    "add": case(either(operator.add), 2), "subtract": case(either(operator.sub), 2),
    "multiply": case(either(operator.mul), 2),
    "divide": case(operator.truediv, 2, ulps=2.5),
    "floor_divide": case(either(np.floor_divide, _divided), 2, ("finite", "any")),
    "remainder": case(either(np.remainder, lambda x, y: x % y if y else 0), 2, scale=lambda x, y: np.abs(y)),
    "negative": case(either(operator.neg)), "abs": case(either(np.abs, abs)),
    "sign": case(either(_sign, lambda x: (x > 0) - (x < 0))),
    "maximum": case(np.maximum, 2), "minimum": case(np.minimum, 2), "conj": case(np.conj),
    **{name: case(either(getattr(np, name), lambda x: x)) for name in ("floor", "ceil", "trunc")},
    "round": case(either(np.round, lambda x: x)),
    "power": Case(
        samples=_power_samples, reference=either(np.power, _integer_power), ulps=16, scale=_power_scale,
    ),
    "sqrt": case(np.sqrt, ulps=3), "rsqrt": case(lambda x: 1 / np.sqrt(x), ulps=4),
    "square": case(either(lambda x: x * x)), "reciprocal": case(lambda x: 1 / x, ulps=2.5),
    "exp": case(np.exp, ulps=3), "expm1": case(np.expm1, ulps=3),
    "log": case(np.log, ulps=3, scale=_complex_part),
    "log1p": case(np.log1p, ulps=3, scale=_complex_part),
    "log2": case(np.log2, ulps=3, scale=_complex_part),
    "log10": case(np.log10, ulps=4, scale=_complex_part),
    "sin": case(np.sin, kinds="moderate", ulps=4), "cos": case(np.cos, kinds="moderate", ulps=4),
    "tan": case(np.tan, kinds="moderate", ulps=5),
    "asin": case(np.arcsin, ulps=4), "acos": case(np.arccos, ulps=4), "atan": case(np.arctan, ulps=5),
    "atan2": case(np.arctan2, 2, ulps=6),
    "sinh": case(np.sinh, ulps=4), "cosh": case(np.cosh, ulps=4), "tanh": case(np.tanh, ulps=5),
    "asinh": case(np.arcsinh, ulps=4), "acosh": case(np.arccosh, ulps=4), "atanh": case(np.arctanh, ulps=5),
    "erf": case(slowly(lambda x: math.erf(x)), ulps=4),
    "sigmoid": case(_sigmoid, ulps=5),
    "relu": case(either(lambda x: np.maximum(x, 0), lambda x: max(x, 0))),
    "silu": case(lambda x: x * _sigmoid(x), kinds="finite", ulps=6),
    "softplus": case(lambda x: np.logaddexp(x, 0), ulps=4),
    "gelu_erf": case(slowly(_gelu), kinds="moderate", ulps=4, scale=_size),
    "gelu_tanh": case(_gelu_tanh, kinds="moderate", ulps=6, scale=_size),
    "logaddexp": case(_logaddexp, 2, ulps=4, scale=lambda x, y: np.maximum(np.abs(x), 1.0)),
}  # fmt: skip


def _casts() -> dict[str, Case]:
    """A case for each target dtype that differs in kind or width."""

    def to(target: DType) -> Case:
        def reference(x: Array) -> Any:
            if target is dt.bool_:
                return x != 0
            if target.is_integer:
                low, high = dt.integer_range(target)
                values = [_integer(v, low, high) for v in x.reshape(-1).tolist()]
                return np.array(values, dtype=target.name).reshape(x.shape)
            return x.astype(np.complex128 if target.is_complex else np.float64)

        takes = tuple(d for d in dt.ALL if not d.is_complex or target.is_complex or target is dt.bool_)
        return Case(
            samples=_cast_samples, reference=reference, result=lambda _: target, ulps=1.0, dtypes=takes,
            call=lambda x: tb.cast(x, target),
        )  # fmt: skip

    return {target.name: to(target) for target in dt.ALL}


def _integer(value: float, low: int, high: int) -> int:
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        return min(max(int(value) if math.isfinite(value) else (high if value > 0 else low), low), high)
    return (int(value) - low) % (high - low + 1) + low


CASTS = _casts()
ELEMENTWISE["cast"] = CASTS["float32"]
