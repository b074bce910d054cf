"""The measure of agreement with the reference: exact, or within a number of units in the last place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .native import Array


@np.errstate(all="ignore")
def difference(
    actual: Array, expected: Any, ulps: float, scale: Any = 0.0, zeros: bool = False
) -> str | None:
    """Return where and how ``actual`` differs from ``expected`` (given in float64 or complex128), or None.

    The error allowed is ``ulps`` times the machine epsilon of the result's dtype times the larger of the
    result and ``scale``; beside it, results too small to be normal may be flushed to zero. Integers and bools
    must be equal. Of a complex number that is not finite it is asked no more than that. With ``zeros``, zeros
    of real floats must have the sign that is expected.
    """
    expected = np.asarray(expected)
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype.kind in "biu":
        good = actual == expected.astype(actual.dtype)
    elif actual.dtype.kind == "c":
        good = _near(actual, expected, ulps, scale)
    else:
        good = _near_real(actual, expected, ulps, scale)
        if zeros:
            good = good & ~_other_zero(actual, expected)
    if np.all(good):
        return None
    at = tuple(int(k[0]) for k in np.nonzero(~np.asarray(good))) if actual.ndim else ()
    bad = int(np.size(good) - np.count_nonzero(good))
    allowed = "" if actual.dtype.kind in "biu" else f" within {ulps:g} ulp"
    return f"{bad} of {actual.size} wrong; at {at}: {actual[at]!s}, expected {expected[at]!s}{allowed}"


@np.errstate(all="ignore")
def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same elements; any NaN is as good as any other, -0.0 is not 0.0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.tobytes() == b.tobytes():
        return True
    if a.dtype.kind in "biu":
        return False
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    signs = np.signbit(wide_a) == np.signbit(wide_b)
    return bool(np.all(((wide_a == wide_b) & signs) | (np.isnan(wide_a) & np.isnan(wide_b))))


def _other_zero(actual: Array, expected: Any) -> Any:
    """Return where one is 0.0 and the other is -0.0."""
    got, wanted = actual.astype(np.float64), expected.astype(actual.dtype).astype(np.float64)
    return (got == 0) & (wanted == 0) & (np.signbit(got) != np.signbit(wanted))


def _near(actual: Array, expected: Array, ulps: float, scale: Any) -> Any:
    info = np.finfo(actual.dtype)
    size = np.where(np.isfinite(expected), np.abs(expected), 0)
    limit = ulps * float(info.eps) * np.maximum(size, scale) + float(info.smallest_normal)
    rounded = expected.astype(actual.dtype)
    parts = [(actual.real, expected.real, rounded.real), (actual.imag, expected.imag, rounded.imag)]
    wild = ~np.isfinite(rounded) & ~np.isfinite(actual)
    return wild | np.logical_and(
        *((a == r) | (np.isnan(a) & np.isnan(r)) | (np.abs(a - e) <= limit) for a, e, r in parts)
    )


def _near_real(actual: Array, expected: Array, ulps: float, scale: Any) -> Any:
    info: Any = ml_dtypes.finfo(actual.dtype)
    got, rounded = actual.astype(np.float64), expected.astype(actual.dtype).astype(np.float64)
    limit = ulps * float(info.eps) * np.maximum(np.abs(expected), scale) + float(info.smallest_normal)
    exact = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    over = ~np.isfinite(got) & ~np.isnan(expected) & (np.abs(expected) + limit >= float(info.max))
    return exact | (np.abs(got - expected) <= limit) | over
