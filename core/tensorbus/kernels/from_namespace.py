"""Ready kernels over an array-API-like library: one table for NumPy, CuPy, MLX and others like them.

``from_namespace(xp, dtypes)`` covers the prims. A backend overrides entries where its library differs or is
slow. The library is a parameter: this module imports none.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any, Final

from ..backend_interface.protocols import Call, Kernel
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..errors import IndexingError
from .namespace_sort_scan import MAX_AXES, ordering
from .namespace_special import erf

SAME_NAME: Final = (
    "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "negative", "abs", "sign",
    "maximum", "minimum", "sqrt", "exp", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "asin",
    "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "trunc",
    "round", "conj", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan",
    "isinf", "isfinite", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and",
    "bitwise_or", "bitwise_xor", "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift", "log10",
    "real", "imag",
)  # fmt: skip
"""Ops that the array API standard calls by the same name, with the meaning that the op has here."""

OPTIONAL_NAMES: Final = (
    "signbit", "nextafter", "gcd", "copysign", "hypot", "exp2", "cbrt", "logaddexp", "logaddexp2", "square",
    "deg2rad", "rad2deg", "lcm",
)  # fmt: skip
"""Ops that many libraries have beyond the standard, and some do not. Composites are decomposed there."""

WIDENED: Final = frozenset(dt.NARROW)
"""Dtypes whose sums and products are accumulated in float32."""

EXTENSION_DTYPES: Final = WIDENED - {dt.float16}
"""Dtypes that many libraries only know from an extension, which leaves Python's numbers to promotion."""

COMBINE: Final = {"add": "add", "multiply": "multiply", "min": "minimum", "max": "maximum"}
"""The functions by which the modes of ``scatter`` combine values with equal indices."""

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "where": ("where", "asarray"), "complex": ("empty", "broadcast_shapes"),
    "power": ("pow", "asarray", "where"),
    "floor_divide": ("floor_divide", "asarray", "isinf", "where", "divide"), "full": ("full",),
    "iota": ("arange",), "sign": ("sign", "logical_or"),
    "erf": ("abs", "minimum", "maximum", "exp", "sign", "where", "zeros_like"),
    "cast": ("zeros", "asarray", "where"), "broadcast_to": ("broadcast_to",), "flip": ("flip",),
    "permute_dims": ("permute_dims",), "concat": ("concat",), "pad": ("full",),
    "windows": ("lib.stride_tricks.sliding_window_view",),
    "fold": ("zeros",), "gather": ("asarray",),
    "scatter": ("ascontiguousarray", *(f"{name}.at" for name in COMBINE.values())), "matmul": ("matmul",),
    "sort": ("sort", "flip"), "argsort": ("argsort", "flip"), "cumulative_sum": ("cumsum",),
    "take_along_axis": ("take_along_axis",),
    **{name: (name,) for name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")},
}  # fmt: skip
"""The functions of a library that the kernel of an op calls, where they are not one of the op's own name."""

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def from_namespace(
    xp: Any, dtypes: Mapping[DType, Any], wrap: Wrap = lambda function: function, own: Collection[str] = (),
) -> dict[str, Callable[..., Any] | Kernel]:  # fmt: skip
    """Return the kernels of ``xp``, whose dtypes are named by ``dtypes``.

    Ops whose functions ``xp`` lacks are left out, and one ``UserWarning`` names all of those functions and
    ops: what has a decomposition is decomposed, what has none needs a kernel of the device's own. ``own`` are
    the ops that it has one for; they are left out as well, and nothing is said of them.

    ``wrap`` is applied to each elementwise function of ``xp``: a place to silence warnings or to turn scalars
    of the library into arrays.
    """
    lacking = _lacking(xp, own)
    table: dict[str, Callable[..., Any] | Kernel] = {
        name: Kernel(name=name, prepare=_same(xp, wrap(getattr(xp, name)), dtypes))
        for name in SAME_NAME
        if hasattr(xp, name)
    }
    table |= _beyond_the_standard(xp, dtypes, wrap)
    fill = wrap(lambda shape, value, dtype: xp.full(shape, value, dtype=dtype))
    count = wrap(lambda length, start, step, dtype: _iota(xp, length, start, step, dtype, dtypes))
    table |= {
        "where": Kernel(name="where", prepare=_where(xp, wrap, dtypes)),
        "complex": Kernel(name="complex", prepare=lambda call: wrap(_complex(xp, dtypes[call.out_dtype]))),
        "floor_divide": Kernel(name="floor_divide", prepare=_floor_divide(xp, wrap, dtypes)),
        "sign": Kernel(name="sign", prepare=lambda call: wrap(_sign(xp, call.out_dtype))),
        "expm1": Kernel(name="expm1", prepare=lambda call: wrap(_expm1(xp, call.out_dtype))),
        "tanh": Kernel(name="tanh", prepare=lambda call: wrap(_tanh(xp, call.out_dtype))),
        "power": Kernel(name="power", prepare=lambda call: _power(xp, dtypes, call, wrap)),
        "erf": Kernel(name="erf", prepare=_widening(lambda x: erf(xp, x), dtypes, wrap)),
        "cast": Kernel(name="cast", prepare=lambda call: _cast(xp, dtypes, call, wrap)),
        "full": lambda shape, value, dtype: fill(shape, value, dtypes[dtype]),
        "iota": lambda length, start, step, dtype: count(length, start, step, dtype),
    }
    for name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"):
        if hasattr(xp, name):
            table[name] = Kernel(name=name, prepare=_reducer(xp, name, dtypes, wrap))
    table |= ordering(xp, dtypes, wrap)
    table |= _movement(xp, fill, wrap) | _indexing(xp, wrap) | _products(xp, dtypes, wrap)
    library = _name_of(xp)
    absent = {*lacking, *own}
    return {op: _named(kernel, library) for op, kernel in table.items() if op not in absent}


def _name_of(xp: Any) -> str:
    return str(getattr(xp, "__name__", type(xp).__name__))


def _lacking(xp: Any, own: Collection[str]) -> frozenset[str]:
    """Return the ops that ``xp`` cannot serve; a warning names them all, and the functions that it lacks."""
    needs = {**{name: (name,) for name in SAME_NAME}, **NEEDS}
    missing = {op: [name for name in names if not _has(xp, name)] for op, names in needs.items()}
    lacking = sorted(op for op, names in missing.items() if names and op not in own)
    if lacking:
        functions = sorted({name for op in lacking for name in missing[op]})
        warnings.warn(
            f"from_namespace: {_name_of(xp)} has no {', '.join(functions)}; so there are no kernels for"
            f" {', '.join(lacking)}. Write kernels of your own for those that have no decomposition, and name"
            f" them in own=, which leaves them out here.",
            stacklevel=3,
        )
    return frozenset(lacking)


def _has(xp: Any, name: str) -> bool:
    """Return whether a library has a function, which may be a function's own: ``add.at``."""
    try:
        attrgetter(name)(xp)
    except AttributeError:
        return False
    return True


def _named(kernel: Callable[..., Any] | Kernel, library: str) -> Callable[..., Any] | Kernel:
    """Call a kernel after the library that runs it: that is how users choose one."""
    return replace(kernel, name=library) if isinstance(kernel, Kernel) else kernel


def _same(
    xp: Any, function: Callable[..., Any], dtypes: Mapping[DType, Any]
) -> Callable[[Call], Callable[..., Any]]:
    """Scalars take the dtype of a small float themselves: libraries without them would widen the result."""

    def prepare(call: Call) -> Callable[..., Any]:
        if len(call.dtypes) == 1 or call.dtypes[-1] not in EXTENSION_DTYPES:
            return function
        own = dtypes[call.dtypes[-1]]
        return lambda *xs: function(*[xp.asarray(x, dtype=own) if type(x) in (int, float) else x for x in xs])

    return prepare


def _beyond_the_standard(xp: Any, dtypes: Mapping[DType, Any], wrap: Wrap) -> dict[str, Kernel]:
    """Composites of small floats are decomposed: few libraries know more than arithmetic of those."""
    native = frozenset(dtypes) - EXTENSION_DTYPES
    limited = {"signbit": None, "exp2": native - frozenset(dt.COMPLEX)}
    return {
        name: Kernel(
            name=name, prepare=_same(xp, wrap(getattr(xp, name)), dtypes),
            dtypes=limited.get(name, native),
        )
        for name in OPTIONAL_NAMES
        if hasattr(xp, name)
    }  # fmt: skip


def _where(xp: Any, wrap: Wrap, dtypes: Mapping[DType, Any]) -> Callable[[Call], Callable[..., Any]]:
    def prepare(call: Call) -> Callable[..., Any]:
        own = dtypes[call.out_dtype]
        function = _same(xp, wrap(xp.where), dtypes)(call)

        def where(condition: Any, x: Any, y: Any) -> Any:
            """Choose by a condition; of two scalars the library would take its own dtype."""
            plain = not (hasattr(x, "shape") or hasattr(y, "shape"))
            return function(condition, xp.asarray(x, dtype=own) if plain else x, y)

        return where

    return prepare


def _power(xp: Any, dtypes: Mapping[DType, Any], call: Call, wrap: Wrap) -> Callable[..., Any]:
    own = dtypes[call.out_dtype]
    if call.out_dtype.kind != "int":
        plain = _same(xp, wrap(xp.pow), dtypes)(call)
        return plain if call.out_dtype.is_complex else partial(_float_power, xp, own, plain)

    def power(x: Any, y: Any) -> Any:
        """Integers to negative powers: NumPy refuses them, the op defines them."""
        x, y = xp.asarray(x, dtype=own), xp.asarray(y, dtype=own)
        if not xp.any(y < 0):
            return xp.pow(x, y)
        inverse = xp.where(x == 1, 1, xp.where(x == -1, 1 - 2 * (y % 2), 0))
        return xp.where(y < 0, inverse, xp.pow(x, xp.where(y < 0, 0, y))).astype(own)

    return wrap(power)


def _float_power(xp: Any, own: Any, plain: Callable[..., Any], x: Any, y: Any) -> Any:
    """Take powers of one half as C does (F.10.4.4): NumPy's are square roots, of -0.0 and -inf too."""
    out = plain(x, y)
    if not hasattr(y, "shape") and y != 0.5:
        return out
    x = xp.asarray(x, dtype=own)
    return xp.where((y == 0.5) & ((x == 0) | (x == -inf)), xp.abs(x), out)


def _floor_divide(xp: Any, wrap: Wrap, dtypes: Mapping[DType, Any]) -> Callable[[Call], Callable[..., Any]]:
    """Python's floor of a quotient differs from the standard's where an operand is infinite.

    So is a number that the dtype cannot hold.
    """

    def floor_divide(own: Any, x: Any, y: Any) -> Any:
        out = xp.floor_divide(x, y)
        infinite = xp.isinf(xp.asarray(x, dtype=own)) | xp.isinf(xp.asarray(y, dtype=own))
        return xp.where(infinite, xp.divide(x, y), out) if infinite.any() else out

    def prepare(call: Call) -> Callable[..., Any]:
        floating = call.out_dtype.is_floating
        function = partial(floor_divide, dtypes[call.out_dtype]) if floating else xp.floor_divide
        return _same(xp, wrap(function), dtypes)(call)

    return prepare


def _expm1(xp: Any, dtype: DType) -> Callable[..., Any]:
    """Libraries get complex infinities, NaN and the sign of zeros right in ``exp`` only."""

    def expm1(x: Any) -> Any:
        out, finite = xp.asarray(xp.expm1(x)), xp.isfinite(x)
        out = out if finite.all() else xp.where(finite, out, xp.exp(x) - 1)
        out.real = xp.where(x == 0, 0.0, out.real)
        return out

    return expm1 if dtype.is_complex else xp.expm1


def _sign(xp: Any, dtype: DType) -> Callable[..., Any]:
    """Bools are their own sign, of which libraries know nothing."""
    return (lambda x: xp.logical_or(x, x)) if dtype is dt.bool_ else xp.sign


def _tanh(xp: Any, dtype: DType) -> Callable[..., Any]:
    """At an infinite real part the standard's imaginary part has the operand's sign, whatever its size."""

    def tanh(x: Any) -> Any:
        out, ends = xp.asarray(xp.tanh(x)), xp.isinf(x.real) & xp.isfinite(x.imag)
        if ends.any():
            out.imag = xp.where(ends, xp.copysign(0.0, x.imag), out.imag)
        return out

    return tanh if dtype.is_complex else xp.tanh


def _complex(xp: Any, native: Any) -> Callable[..., Any]:
    def complex(x: Any, y: Any) -> Any:
        """Set the parts one by one: ``x + 1j * y`` is NaN where ``y`` is infinite."""
        shapes = [part.shape for part in (x, y) if hasattr(part, "shape")]
        out = xp.empty(xp.broadcast_shapes(*shapes), dtype=native)
        out.real, out.imag = x, y
        return out

    return complex


def _cast(xp: Any, dtypes: Mapping[DType, Any], call: Call, wrap: Wrap) -> Callable[..., Any]:
    source, target = call.dtypes[0], call.attrs["dtype"]
    native = dtypes[target]
    if source is target:
        return lambda x: x
    if target is dt.bool_:
        return wrap(lambda x: x != xp.zeros((), dtype=x.dtype))
    if not (source.is_floating and target.is_integer):
        return wrap(lambda x: x.astype(native))
    low, high = dt.integer_range(target)
    wide = dtypes[dt.float32] if source in WIDENED else None

    def saturate(x: Any) -> Any:
        x = x if wide is None else x.astype(wide)
        fits = (x > low - 1 if low > -(1 << 62) else x >= low) & (x < float(high + 1))
        out = x.astype(native)
        if bool(fits.all()):
            return out
        ends = [xp.asarray(n, dtype=native) for n in (low, 0, high)]
        return xp.where(fits, out, xp.where(x > 0, ends[2], xp.where(x < 0, ends[0], ends[1])))

    return wrap(saturate)


def _iota(xp: Any, length: int, start: Any, step: Any, dtype: DType, dtypes: Mapping[DType, Any]) -> Any:
    wide = dtypes[
        dt.float32 if dtype in WIDENED else dtype if dtype.itemsize == 8 or dtype.is_floating else dt.int64
    ]
    places = xp.arange(length, dtype=wide)
    places = places * step if step != 1 else places
    return (places + start if start else places).astype(dtypes[dtype])


def _reducer(
    xp: Any, name: str, dtypes: Mapping[DType, Any], wrap: Wrap
) -> Callable[[Call], Callable[..., Any]]:
    function = getattr(xp, name)

    def prepare(call: Call) -> Callable[..., Any]:
        axis, keepdims = call.attrs["axis"], call.attrs["keepdims"]
        if name in ("argmax", "argmin"):
            index = dtypes[dt.int64]
            return wrap(lambda x: function(x, axis=axis[0], keepdims=keepdims).astype(index))
        if call.dtypes[0] in WIDENED and name in ("sum", "prod"):
            wide, own = dtypes[dt.float32], dtypes[call.dtypes[0]]
            return wrap(lambda x: function(x.astype(wide), axis=axis, keepdims=keepdims).astype(own))
        if name in ("sum", "prod"):
            own = dtypes[call.out_dtype]
            return wrap(lambda x: function(x, axis=axis, keepdims=keepdims, dtype=own))
        return wrap(lambda x: function(x, axis=axis, keepdims=keepdims))

    return prepare


def _movement(xp: Any, fill: Callable[..., Any], wrap: Wrap) -> dict[str, Callable[..., Any] | Kernel]:
    def box(start: Any, size: Any, step: Any) -> tuple[slice, ...]:
        ends = (b + n * s for b, n, s in zip(start, size, step, strict=True))
        return tuple(slice(b, e if e >= 0 else None, s) for b, e, s in zip(start, ends, step, strict=True))

    def taking(call: Call) -> Callable[..., Any]:
        return operator.itemgetter((..., *box(call.attrs["start"], call.attrs["size"], call.attrs["step"])))

    def taken(call: Call) -> Callable[..., Any]:
        size, step = call.attrs["size"], call.attrs["step"]
        if all(s == 1 for s in step):
            return lambda x, start: x[(..., *[slice(b, b + n) for b, n in zip(start, size, strict=True)])]
        return lambda x, start: x[(..., *box(start, size, step))]

    def slice_update(x: Any, value: Any, start: Any, step: Any) -> Any:
        if not x.shape:  # a library may give scalars that nothing can be put into
            return value.copy()
        out = x.copy()
        out[box(start, value.shape, step)] = value
        return out

    def pad(x: Any, low: Any, high: Any, value: Any) -> Any:
        shape = tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True))
        out = fill(shape, value, x.dtype)
        out[tuple(slice(a, a + n) for a, n in zip(low, x.shape, strict=True))] = x
        return out

    def windows(x: Any, size: Any, stride: Any, dilation: Any) -> Any:
        axes = tuple(range(x.ndim - len(size), x.ndim))
        reach = tuple(d * (k - 1) + 1 for k, d in zip(size, dilation, strict=True))
        every = xp.lib.stride_tricks.sliding_window_view(x, reach, axis=axes)
        steps = (*(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))
        return every[(..., *steps)]

    def fold(x: Any, shape: Any, stride: Any, dilation: Any) -> Any:
        return summed(x, shape, stride, dilation)

    @wrap
    def summed(x: Any, shape: Any, stride: Any, dilation: Any) -> Any:
        rank = len(shape)
        lead, counts, size = x.shape[: -2 * rank], x.shape[-2 * rank : -rank], x.shape[-rank:]
        out = xp.zeros((*lead, *shape), dtype=x.dtype)
        for place in range(_product(size)):
            at = [place // _product(size[k + 1 :]) % size[k] for k in range(rank)]
            target = tuple(
                slice(a * d, a * d + n * s, s)
                for a, d, n, s in zip(at, dilation, counts, stride, strict=True)
            )
            out[(..., *target)] += x[(..., *at)]
        return out

    return {
        "broadcast_to": lambda x, shape: xp.broadcast_to(x, shape),
        "reshape": Kernel(
            name="reshape", prepare=lambda call: operator.methodcaller("reshape", call.attrs["shape"])
        ),
        "permute_dims": lambda x, axes: xp.permute_dims(x, axes),
        "flip": lambda x, axis: xp.flip(x, axis=axis) if axis else x,
        "concat": lambda *xs, axis: xp.concat(xs, axis=axis),
        "slice": Kernel(name="slice", prepare=taking, runtime_attrs=taken),
        "slice_update": slice_update,
        "pad": pad,
        "windows": windows,
        "fold": fold,
    }


def _product(lengths: Any) -> int:
    result = 1
    for n in lengths:
        result *= n
    return result


def _indexing(xp: Any, wrap: Wrap) -> dict[str, Callable[..., Any] | Kernel]:
    def check(name: str, x: Any, indices: Any) -> None:
        for axis, index in enumerate(indices):
            if index.size and (int(index.min()) < 0 or int(index.max()) >= x.shape[axis]):
                wrong = int(index.max()) if int(index.max()) >= x.shape[axis] else int(index.min())
                raise IndexingError(
                    f"{name}: index {wrong} is out of range for axis {axis} of length {x.shape[axis]}."
                )

    def merged(x: Any, indices: Any) -> tuple[Any, Any]:
        """Return ``x`` with the axes that are indexed as one, and the index along it."""
        place: Any = 0
        for length, index in zip(x.shape, indices, strict=False):
            place = place * length + index
        count = len(indices)
        return x.reshape(_product(x.shape[:count]), *x.shape[count:]), (place,)

    def gather(x: Any, *indices: Any) -> Any:
        check("gather", x, indices)
        x, indices = (x, indices) if len(indices) <= MAX_AXES else merged(x, indices)
        return xp.asarray(x[indices])

    def scatter(x: Any, value: Any, *indices: Any, mode: str) -> Any:
        check("scatter", x, indices)
        out = x.copy()
        if mode != "set":
            return combine_at(out, value, mode, *indices)
        rows, indices = (out, indices) if len(indices) <= MAX_AXES else merged(out, indices)
        # In memory order, or the library may store the values of one place in another order.
        rows[tuple(map(xp.ascontiguousarray, indices))] = xp.ascontiguousarray(value)
        return rows.reshape(x.shape)

    @wrap
    def combine_at(out: Any, value: Any, mode: str, *indices: Any) -> Any:
        combine = getattr(xp, COMBINE[mode]).at
        if max(out.ndim, value.ndim) <= MAX_AXES:
            combine(out, indices, value)
            return out
        rows, (place,) = merged(out, indices)
        rest = _product(rows.shape[1:])
        rows = rows.reshape(rows.shape[0], rest)
        combine(rows, (place.reshape(-1),), value.reshape(place.size, rest))
        return rows.reshape(out.shape)

    return {"gather": gather, "scatter": scatter}


def _widening(
    function: Callable[..., Any], dtypes: Mapping[DType, Any], wrap: Wrap
) -> Callable[[Call], Callable[..., Any]]:
    """Compute narrow dtypes in float32."""

    def prepare(call: Call) -> Callable[..., Any]:
        attrs = dict(call.attrs)
        if call.out_dtype not in WIDENED:
            return wrap(lambda *xs: function(*xs, **attrs)) if attrs else wrap(function)
        wide, own = dtypes[dt.float32], dtypes[call.out_dtype]
        return wrap(lambda *xs: function(*(x.astype(wide) for x in xs), **attrs).astype(own))

    return prepare


def _products(xp: Any, dtypes: Mapping[DType, Any], wrap: Wrap) -> dict[str, Callable[..., Any] | Kernel]:
    if not hasattr(xp, "matmul"):
        return {}
    return {
        "matmul": Kernel(name="matmul", prepare=_widening(xp.matmul, dtypes, wrap)),
    }
