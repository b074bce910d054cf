"""Elementwise ops: NumPy for few elements, one generated kernel for many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, DType, Kernel

from ..memory import DTYPES, fast_run, run
from .kernels_native import (
    COMPUTE_BOUND_SIZE,
    MEMORY_BOUND_SIZE,
    NARROW,
    SLOW_IN_NUMPY_SIZE,
    GeneratedKernel,
    is_covered,
)
from .kernels_native import over as write_over

_ARRAY: Final = np.ndarray
_NARROW: Final = frozenset(NARROW)
_COSTLY_OPS: Final = (
    "power exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh atan2"
    " floor_divide remainder nextafter gcd sign".split()
)
_LIGHT_OPS: Final = (
    "add subtract multiply divide negative abs sqrt floor ceil round trunc maximum minimum equal"
    " not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not"
    " bitwise_and bitwise_or bitwise_xor bitwise_invert bitwise_left_shift bitwise_right_shift isnan isinf"
    " isfinite cast".split()
)
_ERF: Final = 256
"""From how many elements on ``erf`` is generated: NumPy has none, so that it takes many passes."""
_NUMBERS: Final = 1024
"""How many of Python's numbers are kept as arrays."""


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


def by_size(small: Kernel, least: int) -> Kernel:
    """Return the kernel of an elementwise op that leaves small arrays to NumPy.

    The plan of such an op serves every shape, so sizes are compared in each call, by as little as possible.
    """

    def prepare(call: Call) -> Callable[..., Any]:
        assert small.prepare is not None
        otherwise = small.prepare(call)
        if not is_covered(call):
            return otherwise
        limit = min(least, SLOW_IN_NUMPY_SIZE) if _NARROW & {*call.dtypes, call.out_dtype} else least
        compiled = GeneratedKernel(call, otherwise)
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
        limit = min(least, SLOW_IN_NUMPY_SIZE) if _NARROW & {*call.dtypes, call.out_dtype} else least
        write = write_over(call, place)
        return write and (lambda *values: values[place].size >= limit and write(*values))

    return Kernel(name=small.name, prepare=prepare, inplace=over)


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


def elementwise_kernels(numpy: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """Return the kernels of the elementwise prims; ``numpy`` has those that serve few elements."""
    least = {
        **dict.fromkeys(_COSTLY_OPS, COMPUTE_BOUND_SIZE),
        **dict.fromkeys(_LIGHT_OPS, MEMORY_BOUND_SIZE),
        "where": SLOW_IN_NUMPY_SIZE,
        "erf": _ERF,
    }
    table = {op: by_size(numpy[op], size) for op, size in least.items()}
    return {**table, "power": _squaring(table["power"], table["multiply"])}
