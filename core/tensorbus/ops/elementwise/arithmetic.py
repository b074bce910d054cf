"""Arithmetic, extremes, signs and rounding."""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import BOOL, COMPLEX, FLOATING, INEXACT, NUMERIC, REAL
from ...errors import ArgumentError, DtypeError
from ...tracing.sym_int import index
from .. import sharding_rules
from ..argument_kinds import NumberOrTensor, fits, shown
from ..call_errors import with_form
from ..definition import Op, Shape, Strides, ViewRule, table
from .comparison import equal, greater, greater_equal, isinf, isnan, less, less_equal, not_equal, signbit
from .family import elementwise
from .where_cast import cast, tensors, where


@with_form
def conj(x: Any, /) -> Any:
    """Return the complex conjugate; of a real tensor or scalar, the same number.

    >>> import tensorbus as tb
    >>> tb.conj(tb.asarray(1 + 2j)).item()
    (1-2j)
    """
    if not hasattr(x, "dtype"):
        return x.conjugate()
    return _conj(x) if x.dtype.is_complex else +x


def _added_tangents(x_t: Any, y_t: Any) -> Any:
    return y_t if x_t is None else x_t if y_t is None else x_t + y_t


def _divided_tangents(y: Any, out: Any, x_t: Any, y_t: Any) -> Any:
    return (x_t if y_t is None else -out * y_t if x_t is None else x_t - out * y_t) / y


add = elementwise(
    "add", arity=2, dtypes=BOOL + NUMERIC, vjp=lambda g: (g, g), jvp=_added_tangents,
    shard=sharding_rules.elementwise("linear"),
    doc="``x + y``; of bools, if any is true.",
)  # fmt: skip
subtract = elementwise(
    "subtract",
    arity=2,
    dtypes=NUMERIC,
    vjp=lambda g: (g, -g),
    jvp=lambda x_t, y_t: _added_tangents(x_t, None if y_t is None else -y_t),
    shard=sharding_rules.elementwise("linear"),
    doc="``x - y``.",
)
multiply = elementwise(
    "multiply", arity=2, dtypes=BOOL + NUMERIC, vjp=lambda g, x, y: (g * conj(y), g * conj(x)),
    jvp="multilinear",
    doc="``x * y``; of bools, whether both are true.",
)  # fmt: skip
divide = elementwise(
    "divide", arity=2, dtypes=INEXACT,
    vjp=lambda g, out, y: (g / conj(y), -g * conj(out / y)), jvp=_divided_tangents, may_overwrite=("out",),
    shard=sharding_rules.elementwise("multilinear", places=(0,)),
    doc="``x / y``; integers give floats.",
)  # fmt: skip
floor_divide = elementwise(
    "floor_divide", cost="function", arity=2, dtypes=REAL, vjp=lambda g: (None, None),
    doc="``x // y``, rounded down, at infinities too. An integer divided by zero gives 0.",
)  # fmt: skip
remainder = elementwise(
    "remainder", cost="function", domain=((-4, 4), (1.5, 4)), arity=2, dtypes=REAL,
    vjp=lambda g, x, y: (g, -g * floor_divide(x, y)),
    doc="``x % y``, with the sign of ``y``. An integer modulo zero gives 0.",
)  # fmt: skip
negative = elementwise(
    "negative", dtypes=NUMERIC, vjp=lambda g: (-g,), jvp="linear", doc="``-x``; unsigned integers wrap."
)
abs = elementwise(
    "abs", dtypes=NUMERIC, result=dt.real_of, vjp=lambda g, x: (g * sign(x),), doc="The magnitude of ``x``."
)
sign: Op[...] = elementwise(
    "sign", dtypes=BOOL + NUMERIC,
    vjp=lambda g, out, x: (_sign_slope(g, out, x) if x.dtype.is_complex else None,),
    doc="-1, 0 or 1 by the sign of ``x``; a complex number divided by its magnitude. Bools and NaN stay.",
)  # fmt: skip


def _sign_slope(g: Any, out: Any, x: Any) -> Any:
    """Only the part of ``g`` across the direction of ``x`` turns it."""
    size, nil = abs(x), equal(x, 0)
    across = g - out * real(conj(out) * g)
    return where(nil, 0.0, across / where(nil, 1.0, size))


maximum = elementwise(
    "maximum", arity=2, dtypes=BOOL + REAL,
    vjp=lambda g, x, y: (g * _share(x, y, less), g * _share(y, x, less)),
    doc="The larger of both; NaN if either is NaN. Equal operands share the gradient.",
)  # fmt: skip
minimum = elementwise(
    "minimum", arity=2, dtypes=BOOL + REAL,
    vjp=lambda g, x, y: (g * _share(x, y, greater), g * _share(y, x, greater)),
    doc="The smaller of both; NaN if either is NaN. Equal operands share the gradient.",
)  # fmt: skip


def _known(wins: Op[...]) -> Callable[[Any, Any], Any]:
    """Return the choice between two operands: the first where it ``wins``, or where the second is NaN."""

    def choose(x: Any, y: Any) -> Any:
        x, y = tensors(x, y)
        return where(_first_wins(wins, x, y), x, y)

    return choose


def _first_wins(wins: Op[...], x: Any, y: Any) -> Any:
    return wins(x, y) | isnan(y) if x.dtype.is_floating else wins(x, y)


def _known_slopes(wins: Op[...]) -> Callable[..., tuple[Any, Any]]:
    def slopes(g: Any, x: Any, y: Any) -> tuple[Any, Any]:
        first = _first_wins(wins, *tensors(x, y))
        return where(first, g, 0), where(first, 0, g)

    return slopes


fmax = elementwise(
    "fmax", arity=2, dtypes=BOOL + REAL, decompose=_known(greater_equal), vjp=_known_slopes(greater_equal),
    doc="The larger of both; of a number and NaN the number. Of equal operands the first has the gradient.",
)  # fmt: skip
fmin = elementwise(
    "fmin", arity=2, dtypes=BOOL + REAL, decompose=_known(less_equal), vjp=_known_slopes(less_equal),
    doc="The smaller of both; of a number and NaN the number. Of equal operands the first has the gradient.",
)  # fmt: skip


@with_form
def real(x: Any, /) -> Any:
    """Return the real part; of a real tensor, the same number.

    >>> import tensorbus as tb
    >>> tb.real(tb.asarray(1 + 2j)).item()
    1.0
    """
    return _real(x) if x.dtype.is_complex else +x


@with_form
def imag(x: Any, /) -> Any:
    """Return the imaginary part; of a real tensor, zeros."""
    if x.dtype.is_complex:
        return _imag(x)
    return table.function("full")(x.shape, 0, dtype=x.dtype, device=x.device)


@with_form
def positive(x: Any, /) -> Any:
    """Return ``x`` itself, as a new tensor: ``+x``."""
    return +x


_conj = elementwise(
    "conj", dtypes=COMPLEX, vjp=lambda g: (conj(g),), jvp="linear", doc="The complex conjugate."
)


def _part_strides(strides: Strides, own: Shape, /) -> Strides:
    """Return the strides of real or imaginary parts, between which the others lie."""
    return tuple(2 * stride for stride in strides)


_real: Op[...] = elementwise(
    "real", dtypes=COMPLEX, result=dt.real_of, vjp=lambda g: (cast(g, dt.complex_of(g.dtype)),), jvp="linear",
    view=ViewRule(
        put=lambda base, value, _: complex(value, _imag(base)), partial=True, strides=_part_strides
    ),
    doc="The real part, as a view.",
)  # fmt: skip
_imag: Op[...] = elementwise(
    "imag", dtypes=COMPLEX, result=dt.real_of, vjp=lambda g: (complex(0.0, g),), jvp="linear",
    view=ViewRule(
        put=lambda base, value, _: complex(_real(base), value), partial=True, strides=_part_strides
    ),
    doc="The imaginary part, as a view.",
)  # fmt: skip
complex: Op[...] = elementwise(
    "complex", arity=2, dtypes=(dt.float32, dt.float64), result=dt.complex_of,
    vjp=lambda g: (real(g), imag(g)), jvp="linear",
    doc="The complex number of real part ``x`` and imaginary part ``y``.",
)  # fmt: skip


def _share(x: Any, y: Any, loses: Op[...]) -> Any:
    return where(loses(x, y), 0.0, where(equal(x, y), 0.5, 1.0))


floor = elementwise("floor", dtypes=REAL, vjp=lambda g: (None,), doc="Rounded down.")
ceil = elementwise("ceil", dtypes=REAL, vjp=lambda g: (None,), doc="Rounded up.")
trunc = elementwise("trunc", dtypes=REAL, vjp=lambda g: (None,), doc="Rounded towards zero.")
round = elementwise(
    "round", dtypes=NUMERIC, vjp=lambda g: (None,),
    doc="Rounded to the nearest, halves to even; of a complex number both parts.",
)  # fmt: skip


@with_form
def rounded(x: Any, /, *, decimals: int = 0) -> Any:
    """Return ``x`` rounded to the nearest of ``decimals`` places, halves to even; negative ones count tens.

    Of a complex number both parts are rounded. Raises ``DtypeError`` for places of what is not floating
    point, ``ArgumentError`` for a number of them that is no integer.

    >>> import tensorbus as tb
    >>> tb.round(tb.asarray([1.5, 1251.0]), decimals=-1).tolist(), tb.round(tb.asarray(2.5)).item()
    ([0.0, 1250.0], 2.0)
    """
    if not hasattr(decimals, "__index__"):
        raise ArgumentError(f"round: decimals must be an integer, got {decimals!r}.")
    places = index(decimals)
    if places == 0:
        return round(x)
    if not x.dtype.is_floating:
        raise DtypeError(f"round: decimals are those of floating point, got dtype {x.dtype}.")
    if not -_MAX_PLACES <= places <= _MAX_PLACES:
        raise ArgumentError(f"round: decimals are from -{_MAX_PLACES} to {_MAX_PLACES}, got {places}.")
    tens = 10.0 ** (places if places > 0 else -places)
    return round(x * tens) / tens if places > 0 else round(x / tens) * tens


_MAX_PLACES: Final = 308
"""The largest power of ten that a float is."""
rounded.__name__ = rounded.__qualname__ = "round"
unwrap(rounded).__name__ = unwrap(rounded).__qualname__ = "round"  # as its errors call it

frac = elementwise(
    "frac", domain=(0.1, 0.9), dtypes=FLOATING, decompose=lambda x: x - trunc(x), vjp=lambda g: (g,),
    doc="``x - trunc(x)``, with the sign of ``x``.",
)  # fmt: skip


def _truncated(x: Any, y: Any) -> Any:
    x, y = tensors(x, y)
    if x.dtype.is_floating:
        return copysign(remainder(abs(x), abs(y)), x)
    rest = remainder(x, y)  # of the sign of y: one y too far where the signs differ
    return where(not_equal(rest, 0) & not_equal(less(x, 0), less(y, 0)), rest - y, rest)


fmod = elementwise(
    "fmod", domain=((-4, 4), (1.5, 4)), arity=2, dtypes=REAL, decompose=_truncated,
    vjp=lambda g, x, y: (g, -g * trunc(x / y)),
    doc="``x % y`` with the sign of ``x``, as in C. An integer modulo zero gives 0.",
)  # fmt: skip


def _with_sign(x: Any, y: Any) -> Any:
    x, y = tensors(x, y)
    return where(equal(signbit(x), signbit(y)), x, -x)


def _with_sign_slope(g: Any, out: Any, x: Any, wanted: tuple[bool, ...]) -> tuple[Any, ...]:
    if not wanted[0]:
        return (None, None)
    return (where(equal(x, 0), 0.0, where(equal(out, x), g, -g)), None)


copysign = elementwise(
    "copysign", arity=2, dtypes=FLOATING, decompose=_with_sign, vjp=_with_sign_slope,
    doc="The magnitude of ``x`` with the sign of ``y``, of zeros and NaN too.",
)  # fmt: skip
nextafter = elementwise(
    "nextafter", smooth=False, arity=2, dtypes=(dt.float32, dt.float64), vjp=lambda g: (g, None),
    doc="The next number after ``x`` on the way to ``y``.",
)  # fmt: skip


def _length(x: Any, y: Any) -> Any:
    """Scaled, so that no square leaves the range; an infinite leg wins over NaN."""
    x, y = map(abs, tensors(x, y))
    large, small = maximum(x, y), minimum(x, y)
    ratio = where(equal(large, 0), 0.0, small / large)
    length = large * table["sqrt"](1 + ratio * ratio)
    return where(isinf(x) | isinf(y), float("inf"), length)


hypot = elementwise(
    "hypot", arity=2, dtypes=FLOATING, decompose=_length,
    vjp=lambda g, out, x, y: (g * (x / out), g * (y / out)),
    doc="``sqrt(x**2 + y**2)`` without overflow on the way.",
)  # fmt: skip
heaviside = elementwise(
    "heaviside", arity=2, dtypes=REAL, vjp=lambda g: (None, None),
    decompose=lambda x, y: _step(*tensors(x, y)),
    doc="0 below zero, 1 above, and ``y`` at zero; 0 for NaN.",
)  # fmt: skip


def _step(x: Any, y: Any) -> Any:
    return where(equal(x, 0), y, cast(greater(x, 0), x.dtype))


lerp = elementwise(
    "lerp", arity=3, dtypes=INEXACT, decompose=lambda x, y, z: _between(*tensors(x, y, z)),
    doc="The point at ``z`` of the way from ``x`` to ``y``; exact at both ends.",
)  # fmt: skip


def _between(start: Any, end: Any, weight: Any) -> Any:
    near = less(abs(weight), 0.5)
    return where(near, start + weight * (end - start), end - (end - start) * (1 - weight))


@with_form
def addcmul(x: Any, first: Any, second: Any, /, *, value: Any = 1) -> Any:
    """Return ``x + value * first * second``.

    >>> import tensorbus as tb
    >>> tb.addcmul(tb.asarray([1.0]), tb.asarray([2.0]), tb.asarray([3.0]), value=0.5).tolist()
    [4.0]
    """
    return x + _scaled("addcmul", first, value) * second


@with_form
def addcdiv(x: Any, first: Any, second: Any, /, *, value: Any = 1) -> Any:
    """Return ``x + value * first / second``."""
    return x + _scaled("addcdiv", first, value) / second


def _scaled(name: str, x: Any, value: Any) -> Any:
    if not fits(value, NumberOrTensor):
        raise ArgumentError(f"{name}: 'value' must be a number or a tensor, got {shown(value)}.")
    return x if isinstance(value, (int, float)) and value == 1 else x * value


@with_form
def nan_to_num(x: Any, /, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Any:
    """Return ``x`` with NaN and infinities replaced: by 0 and the dtype's largest and smallest numbers.

    >>> import tensorbus as tb
    >>> tb.nan_to_num(tb.asarray([tb.nan, tb.inf]), posinf=9.0).tolist()
    [0.0, 9.0]
    """
    if x.dtype.is_complex:
        return complex(nan_to_num(real(x), nan, posinf, neginf), nan_to_num(imag(x), nan, posinf, neginf))
    if not x.dtype.is_floating:
        return +x
    top = dt.largest(x.dtype)
    high, low = top if posinf is None else posinf, -top if neginf is None else neginf
    finite = where(isinf(x), where(greater(x, 0), tensors(x, high)[1], tensors(x, low)[1]), x)
    return where(not_equal(x, x), nan, finite)
