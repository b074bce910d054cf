"""Bounds of rounding errors, which tests take for tolerances: they hold whichever way a sum is added up.

A sum of ``n`` terms in floats of unit roundoff ``u`` is off by at most ``gamma(n)`` times the sum of their
magnitudes. ``gamma`` is the probabilistic bound, ``exp(8 sqrt(n) u) - 1``, wrong with a chance of
``2n exp(-32)`` (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, SIAM J. Sci.
Comput., 2019); the certain one, ``n u``, would let wrong terms through.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

CONFIDENCE = 8.0
UNITS = {"float8_e5m2": 2.0**-3, "float8_e4m3fn": 2.0**-4, "bfloat16": 2.0**-8, "float16": 2.0**-11,
         "float32": 2.0**-24, "float64": 2.0**-53, "complex64": 2.0**-24, "complex128": 2.0**-53}  # fmt: skip
SMALLEST = {"float8_e5m2": 2.0**-17, "float8_e4m3fn": 2.0**-10, "bfloat16": 2.0**-134, "float16": 2.0**-25}
"""Half of the smallest number above zero."""
WORSE_THAN_EAGER = 4.0


def unit(dtype: Any) -> float:
    """Return the unit roundoff of a dtype, by its name: half the distance from 1 to the next number."""
    return UNITS[getattr(dtype, "name", str(dtype)).removeprefix("tensorbus.")]


def gamma(operations: int, dtype: Any) -> float:
    """Return the relative error of so many roundings in a row."""
    return math.expm1(CONFIDENCE * math.sqrt(max(operations, 1)) * unit(dtype))


def of_sum(terms: Any, axis: Any, dtype: Any, *, extra: int = 2, keepdims: bool = False) -> Any:
    """Return the bound for a sum over ``axis``; each term was rounded ``extra`` times before."""
    size = np.abs(_wide(terms)).sum(axis, keepdims=keepdims)
    return gamma(np.size(terms) // max(np.size(size), 1) + extra, dtype) * size


def of_product(a: Any, b: Any, dtype: Any, *, extra: int = 2) -> Any:
    """Return the bound for the matrix product of ``a`` and ``b``, and ``extra`` roundings of its elements."""
    a, b = np.abs(_wide(a)), np.abs(_wide(b))
    return gamma(a.shape[-1] + extra, dtype) * (a @ b)


def of_difference(value: Any, step: float, third: float, *, operations: int = 16) -> Any:
    """Return the bound for a central difference in float64 of values that so many ``operations`` computed.

    ``third`` is as large as the third derivative.
    """
    return step**2 / 6 * third + gamma(operations, "float64") * np.abs(_wide(value)) / step


def stored(value: Any, dtype: Any) -> Any:
    """Return the bound for storing a result in a dtype narrower than the one that it was computed in."""
    smallest = SMALLEST.get(getattr(dtype, "name", str(dtype)), 0.0)
    return unit(dtype) * np.abs(_wide(value)) + smallest


def _wide(x: Any) -> Any:
    x = np.asarray(x)
    return x.astype("c16" if x.dtype.kind == "c" else "f8")


def assert_within(actual: Any, exact: Any, bound: Any, message: str = "") -> None:
    """Check that ``found`` is as far as ``bound`` from ``exact`` at most; no number is none in both."""
    actual, exact = np.asarray(actual), np.asarray(exact)
    assert actual.shape == exact.shape, (message, actual.shape, exact.shape)
    kind = "c16" if np.iscomplexobj(actual) or np.iscomplexobj(exact) else "f8"
    actual, exact = actual.astype(kind), exact.astype(kind)
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(actual[~finite], exact[~finite], err_msg=message)
    error = np.abs(actual[finite] - exact[finite])
    allowed = np.broadcast_to(bound, exact.shape)[finite]
    if not (error <= allowed).all():
        worst = int(np.argmax(np.where(np.isnan(error), np.inf, error - allowed)))
        raise AssertionError(
            f"{message}: {int((~(error <= allowed)).sum())} of {error.size} elements are off by more than"
            f" rounding explains: {actual[finite][worst]!r} instead of {exact[finite][worst]!r},"
            f" {error[worst]:.3g} > {allowed[worst]:.3g}"
        )


def assert_as_exact_as_eager(
    actual: Any, eager: Any, exact: Any, operations: int, dtype: Any, message: str = ""
) -> None:
    """Check a result of many ops against the same ones in float64, ``exact``.

    It may be four times as far from that as ``eager``, op by op in the same dtype, is at its worst element,
    and as so many ``operations`` after each other explain in the largest.
    """
    actual, eager, exact = (np.asarray(x) for x in (actual, eager, exact))
    finite = np.isfinite(exact)
    size = float(np.abs(exact[finite]).max(initial=0.0))
    off = float(np.abs(eager.astype(exact.dtype)[finite] - exact[finite]).max(initial=0.0))
    assert_within(actual, exact, WORSE_THAN_EAGER * off + gamma(operations, dtype) * size, message)


def assert_alike(
    actual: Any, other: Any, roundings: int, dtype: Any = None, *, size: Any = None, message: str = ""
) -> None:
    """Check two ways of computing the same, which may add up in another order.

    Tensors, arrays and Python's floats, in containers or not, may be apart by what so many ``roundings`` in a
    row explain on both sides, relative to ``size``: the magnitude of what was added up, the largest element
    where nothing cancels. They are roundings in ``dtype``, which is that of the tensor, and float32 of floats
    of Python, unless it is given. All else is equal, types too.
    """
    if isinstance(actual, dict):
        assert isinstance(other, dict), message
        assert [*actual] == [*other], message
        pairs = [(actual[key], other[key]) for key in actual]
    elif isinstance(actual, (list, tuple)) and not (actual and all(type(x) is float for x in actual)):
        assert type(actual) is type(other), message
        assert len(actual) == len(other), (message, actual, other)
        pairs = list(zip(actual, other, strict=True))
    else:
        pairs = []
        _assert_values_alike(actual, other, roundings, dtype, size, message)
    for a, b in pairs:
        assert_alike(a, b, roundings, dtype, size=size, message=message)


def _assert_values_alike(
    actual: Any, other: Any, roundings: int, dtype: Any, size: Any, message: str
) -> None:
    """Check what holds no containers: a list of floats is one value, as the row of a tensor is."""
    assert type(actual) is type(other), (message, actual, other)
    a, b = (x.detach().numpy() if hasattr(x, "detach") else x for x in (actual, other))
    numbers = np.asarray(b)
    if numbers.dtype.kind not in "fcV":
        assert bool(np.array_equal(a, b) if isinstance(b, np.ndarray) else a == b), (message, actual, other)
        return
    if isinstance(b, np.ndarray):
        assert a.dtype == b.dtype, (message, a.dtype, b.dtype)
    magnitudes = np.abs(_wide(numbers))
    size = magnitudes[np.isfinite(magnitudes)].max(initial=0.0) if size is None else size
    dtype = dtype or (b.dtype if isinstance(b, np.ndarray) else "float32")
    assert_within(a, b, 2 * gamma(roundings, dtype) * size, message)
