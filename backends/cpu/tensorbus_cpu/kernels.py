"""The eager table: NumPy's own functions, then what NumPy lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import (
    Call,
    DeviceError,
    DType,
    Kernel,
    KernelTable,
    dtypes,
    from_namespace,
    linalg_from_namespace,
)

from .compiler import NoRoomError
from .convolution import kernels_convolution as convolution
from .eager import inplace_kernels as in_place
from .eager import kernels_composite as composites
from .eager import kernels_native as large
from .eager import kernels_partial_sort as selecting
from .eager import kernels_reduction as reductions
from .eager import row_stable_sum as sums
from .eager.kernels_native import COSTLY, LIGHT, MANY, NARROW, Compiled, is_covered
from .eager.kernels_random import RANDOM_BITS
from .gemm import kernels_matmul as products
from .memory import DTYPES, fast_run, run

_ARRAY = np.ndarray
_COSTLY: Final = frozenset(
    "power exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh atan2"
    " floor_divide remainder nextafter gcd sign".split()
)
_ELEMENTWISE: Final = (
    "add subtract multiply divide negative abs sqrt floor ceil round trunc maximum minimum equal"
    " not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not"
    " bitwise_and bitwise_or bitwise_xor bitwise_invert bitwise_left_shift bitwise_right_shift isnan isinf"
    " isfinite cast".split()
)
Shape = tuple[int, ...]
_NUMBERS: Final = 1024
_SMALL: Final = frozenset(DTYPES[d] for d in (dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2))
_NARROW: Final = frozenset(NARROW)
_WIDENED: Final = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2})


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call ``function`` in the context of ``memory.run``; make an array of a scalar that it returns."""

    def unary(x: Any) -> Any:
        try:
            out = fast_run(function, x)
        except RuntimeError:
            out = run(function, x)
        return out if type(out) is _ARRAY else np.asarray(out)

    def binary(x: Any, y: Any) -> Any:
        try:
            out = fast_run(function, x, y)
        except RuntimeError:
            out = run(function, x, y)
        return out if type(out) is _ARRAY else np.asarray(out)

    def kernel(*values: Any) -> Any:
        out = run(function, *values)
        return out if type(out) is _ARRAY else np.asarray(out)

    arity = getattr(function, "nin", 0)
    made = unary if arity == 1 else binary if arity == 2 else kernel
    made.__wrapped__ = function  # type: ignore[union-attr]
    return made


class Numbers(dict[Any, Any]):
    """Python's numbers as arrays of a dtype, which NumPy computes with in half the time.

    Kept are those that no other number is equal to, so neither zeros of a sign nor NaN.
    """

    def __init__(self, dtype: DType) -> None:
        super().__init__()
        self.dtype = DTYPES[dtype]

    def __missing__(self, number: Any) -> Any:
        if type(number) is complex or not number or number != number:
            return number
        if len(self) >= _NUMBERS:
            self.clear()
        return self.setdefault(number, run(np.asarray, number, self.dtype))


def _by_size(small: Kernel, least: int) -> Kernel:
    """Return the kernel of an elementwise op that leaves small arrays to NumPy.

    The plan of such an op serves every shape, so sizes are compared in each call, by as little as possible.
    """

    def prepare(call: Call) -> Callable[..., Any]:
        assert small.prepare is not None
        otherwise = small.prepare(call)
        if not is_covered(call):
            return otherwise
        limit = min(least, MANY) if _NARROW & {*call.dtypes, call.out_dtype} else least
        compiled = Compiled(call, otherwise)
        function: Any = getattr(otherwise, "__wrapped__", None)
        arity = getattr(function, "nin", 0)

        def unary(x: Any) -> Any:
            if x.size >= limit:
                return compiled(x)
            try:
                out = fast_run(function, x)
            except RuntimeError:  # another thread is in the context
                return otherwise(x)
            return out if type(out) is _ARRAY else np.asarray(out)

        def binary(x: Any, y: Any) -> Any:
            if x.size >= limit or y.size >= limit:
                return compiled(x, y)
            try:
                out = fast_run(function, x, y)
            except RuntimeError:
                return otherwise(x, y)
            return out if type(out) is _ARRAY else np.asarray(out)

        numbers = Numbers(call.dtypes[-1])

        def number_last(x: Any, y: Any) -> Any:
            if x.size >= limit:
                return compiled(x, y)
            try:
                out = fast_run(function, x, numbers[y])
            except RuntimeError:
                return otherwise(x, y)
            return out if type(out) is _ARRAY else np.asarray(out)

        def number_first(x: Any, y: Any) -> Any:
            if y.size >= limit:
                return compiled(x, y)
            try:
                out = fast_run(function, numbers[x], y)
            except RuntimeError:
                return otherwise(x, y)
            return out if type(out) is _ARRAY else np.asarray(out)

        def general(*values: Any) -> Any:
            for x in values:
                if type(x) is _ARRAY and x.size >= limit:
                    return compiled(*values)
            return otherwise(*values)

        if arity == 2:
            pairs: dict[tuple[bool, ...], Callable[..., Any]] = {
                (False, False): binary, (False, True): number_last, (True, False): number_first,
            }  # fmt: skip
            return pairs.get(call.weak, general)
        return unary if arity == 1 else general

    def over(call: Call, place: int) -> Callable[..., bool] | None:
        limit = min(least, MANY) if _NARROW & {*call.dtypes, call.out_dtype} else least
        write = large.over(call, place)
        return write and (lambda *values: values[place].size >= limit and write(*values))

    return Kernel(name=small.name, prepare=prepare, inplace=over)


def _where_large(
    small: Any, made: Callable[[Call, Callable[..., Any]], Callable[..., Any]], size: Callable[[Call], int],
    covered: Callable[[Call], bool] = is_covered,
) -> Kernel:  # fmt: skip
    """Return the kernel that is ``made`` for large calls of an op whose plan knows the shapes."""

    def prepare(call: Call) -> Callable[..., Any]:
        if isinstance(small, Kernel):
            assert small.prepare is not None
            otherwise = small.prepare(call)
        else:
            otherwise = partial(small, **call.attrs)
        return made(call, otherwise) if size(call) >= LIGHT and covered(call) else otherwise

    return Kernel(name=small.name if isinstance(small, Kernel) else "numpy", prepare=prepare)


def _refuse(*values: Any) -> Any:
    raise DeviceError("cpu: the compiler that this call was planned for is gone")


def _operand_size(call: Call) -> int:
    return prod(call.shapes[0]) if call.shapes else 0


def _reduced_size(call: Call) -> int:
    """Return how many elements of float32 take NumPy as long: it goes through narrow ones one at a time."""
    size = _operand_size(call)
    return size * LIGHT // MANY if call.dtypes[0] in _NARROW else size


def _scanned_size(call: Call) -> int:
    return max(_reduced_size(call), _costly(call))


def _value_size(call: Call) -> int:
    return prod(call.shapes[1]) if call.shapes else 0


def _costly(call: Call) -> int:
    return _operand_size(call) * LIGHT // COSTLY


def _light(call: Call) -> int:
    """NumPy's reductions keep up for longer than its other functions: they write next to nothing."""
    return _reduced_size(call) // 2


def _is_native_float(call: Call) -> bool:
    return call.dtypes[0] in (dtypes.float32, dtypes.float64)


def _result_size(call: Call) -> int:
    return prod(call.out_shape) if call.out_shape else 0


def _max_pool(x: Any, size: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Any:
    """Take the maximum of strided boxes, one for each place of a window: NumPy is slow on short axes."""
    rank = len(size)
    if any(padding):
        finite = x.dtype == DTYPES[dtypes.float8_e4m3fn]  # it has no infinities
        lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -448.0 if finite else -np.inf
        edges = ((0, 0),) * (x.ndim - rank) + tuple((p, p) for p in padding)
        x = np.pad(x, edges, constant_values=lowest)
    space = zip(x.shape[-rank:], size, stride, dilation, strict=True)
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in space]
    out = None
    for place in np.ndindex(*size):
        starts = [a * d for a, d in zip(place, dilation, strict=True)]
        box = x[
            (..., *(slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, counts, stride, strict=True)))
        ]
        out = box.copy() if out is None else np.maximum(out, box, out=out)
    return out


def _folded(name: str, ufunc: np.ufunc, general: Kernel) -> Kernel:
    """Reduce by the ufunc itself: NumPy's named functions spend more on small arrays than the work takes."""

    def prepare(call: Call) -> Callable[..., Any]:
        if call.dtypes[0] in _WIDENED and name in ("sum", "prod"):
            return general.prepare(call)  # type: ignore[misc]
        axis, keepdims = call.attrs["axis"], call.attrs["keepdims"]
        reduce: Callable[..., Any] = ufunc.reduce
        dtype = DTYPES[call.out_dtype] if name in ("sum", "prod") else None
        return quiet(lambda x: reduce(x, axis, dtype, None, keepdims))

    return Kernel(name=general.name, prepare=prepare)


def _totalled(small: Kernel) -> Kernel:
    """Return the kernel of a sum or product: of floats in an order that depends on a row alone."""
    whole = _where_large(small, reductions.fold, _operand_size)

    def prepare(call: Call) -> Callable[..., Any]:
        assert small.prepare is not None
        assert whole.prepare is not None
        if call.op == "sum" and call.dtypes[0].is_complex:
            return sums.pairs(call)
        floats = call.dtypes[0].is_floating
        return sums.reduce(call, small.prepare(call)) if floats else whole.prepare(call)

    return Kernel(name=small.name, prepare=prepare)


def _squaring(power: Kernel, multiply: Kernel) -> Kernel:
    """Return the kernel of powers that knows the one that is asked for most."""

    def prepare(call: Call) -> Callable[..., Any]:
        assert power.prepare is not None
        assert multiply.prepare is not None
        general = power.prepare(call)
        if call.weak != (False, True):
            return general
        product = multiply.prepare(replace(call, op="multiply", weak=(False, False)))
        return lambda x, y: product(x, x) if y == 2 else general(x, y)

    return Kernel(name=power.name, prepare=prepare)


def _beyond(small: Kernel, composite: Kernel) -> Kernel:
    """Return the kernel of a composite that NumPy has, though not for the smallest floats."""
    sized = _by_size(small, COSTLY)
    assert small.dtypes is not None
    native = small.dtypes

    def prepare(call: Call) -> Callable[..., Any]:
        chosen = sized if native.issuperset(call.dtypes) else composite
        assert chosen.prepare is not None
        return chosen.prepare(call)

    def supports(call: Call) -> bool | str:
        assert composite.supports is not None
        return native.issuperset(call.dtypes) or composite.supports(call)

    return Kernel(name=small.name, prepare=prepare, supports=supports)


def _by_bits(move: Callable[..., Any]) -> Callable[..., Any]:
    """Move elements of the small floats as integers: NumPy's helpers do not know how to describe them."""

    def kernel(x: Any, **attrs: Any) -> Any:
        if x.dtype not in _SMALL:
            return move(x, **attrs)
        return move(x.view(f"u{x.dtype.itemsize}"), **attrs).view(x.dtype)

    return kernel


def _table() -> KernelTable:
    from_numpy: dict[str, Any] = from_namespace(np, DTYPES, quiet)
    table = dict(from_numpy)
    ufuncs = {
        "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
        "all": np.logical_and,
    }  # fmt: skip
    table |= {name: _folded(name, ufunc, table[name]) for name, ufunc in ufuncs.items()}
    table |= {name: _by_size(table[name], COSTLY) for name in _COSTLY}
    table |= {name: _by_size(table[name], LIGHT) for name in _ELEMENTWISE}
    table["where"] = _by_size(from_numpy["where"], MANY)
    table["erf"] = _by_size(from_numpy["erf"], 256)  # of which NumPy has none
    table["power"] = _squaring(table["power"], table["multiply"])
    table["fmod"] = replace(from_numpy["hypot"], prepare=lambda call: quiet(np.fmod))
    composite = composites.composite(table)
    for name in composites.NAMES:
        table[name] = _beyond(table[name], composite) if name in table else composite
    table["windows"] = _by_bits(table["windows"])
    sized: dict[str, Callable[..., Any]] = {
        "any": large.Compiled, "all": large.Compiled, "sort": large.sort, "argsort": large.argsort,
        "cumulative_sum": reductions.scan, "cumulative_prod": large.Compiled,
    }  # fmt: skip
    sizes = {"any": _reduced_size, "all": _reduced_size, "sort": _operand_size, "argsort": _costly}
    for name, made in sized.items():
        table[name] = _where_large(table[name], made, sizes.get(name, _scanned_size))
    table["argsort_part"] = selecting.kernel(table["argsort"])
    table |= {name: _totalled(table[name]) for name in ("sum", "prod")}
    for name in ("max", "min"):
        table[name] = _where_large(table[name], reductions.fold, _light)
    for name in ("argmax", "argmin"):
        table[name] = _where_large(table[name], reductions.best, _light)
    for name in ("gather", "take_along_axis"):
        table[name] = _where_large(table[name], large.gather, _result_size, lambda call: True)
    table["scatter"] = _where_large(table["scatter"], large.scatter, _value_size)
    table["scatter"] = replace(table["scatter"], inplace=in_place.scatter)
    table["slice_update"] = Kernel(
        name="numpy", function=table["slice_update"], inplace=in_place.slice_update
    )
    table["iota"] = _where_large(table["iota"], large.Compiled, _result_size)
    table["matmul"] = _where_large(table["matmul"], products.matmul, lambda call: LIGHT, lambda call: True)
    table["reshape"] = _where_large(table["reshape"], products.reshape, _costly, lambda call: True)
    table["fold"] = _where_large(table["fold"], products.overlap, _costly, _is_native_float)
    table |= {
        name: Kernel(name="generated", prepare=made, supports=convolution.takes_windows)
        for name, made in convolution.KERNELS.items()
    }
    table["scatter_along_axis"] = Kernel(
        name="generated", prepare=lambda call: large.scatter(call, _refuse), supports=large.takes_places
    )
    for name in ("softmax", "log_softmax", "standardize"):
        table[name] = Kernel(name="generated", prepare=reductions.rows, supports=reductions.takes_rows)
    pool = Kernel(name="numpy", prepare=lambda call: quiet(partial(_max_pool, **call.attrs)))
    table |= {
        name: replace(kernel, prepare=_in_spite(kernel.prepare))
        for name, kernel in table.items()
        if isinstance(kernel, Kernel) and kernel.prepare is not None
    }
    return {**table, **linalg_from_namespace(np, quiet), "random_bits": RANDOM_BITS, "max_pool": pool}


def _in_spite(prepare: Callable[[Call], Callable[..., Any]]) -> Callable[[Call], Callable[..., Any]]:
    """Prepare once more, without the compiler, where there is no room for what it makes."""

    def prepared(call: Call) -> Callable[..., Any]:
        try:
            return prepare(call)
        except NoRoomError:
            return prepare(call)

    return prepared


TABLE: Final = _table()
