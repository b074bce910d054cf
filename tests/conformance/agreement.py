"""When a result is as good as the reference: exactly, or within a number of units in the last place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from samples import Array


def wide(x: Array) -> Array:
    """Return floats in float64 and complex numbers in complex128, for a reference; others as they are."""
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


def same(a: Array, b: Array) -> bool:
    """Return whether two arrays have the same shape, dtype and bits; any NaN is as good as any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    equal = a == b
    if a.dtype.kind not in "biu":
        zero = (a == 0) & (b == 0)
        signs = np.signbit(wide(a).real) == np.signbit(wide(b).real)
        equal = (equal & (signs | ~zero)) | (np.isnan(a) & np.isnan(b))
    return bool(np.all(equal))


@np.errstate(all="ignore")
def check(actual: Array, expected: Any, ulps: float, scale: Any = 0.0) -> None:
    """Assert that ``actual`` is ``expected`` (given in float64 or complex128) within the tolerance.

    The error allowed is ``ulps`` times the machine epsilon of the result's dtype times the larger of the
    result and ``scale``; beside it, results too small to be normal may be flushed to zero.
    """
    expected = np.asarray(expected)
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    if actual.dtype.kind in "biu":
        good = actual == expected.astype(actual.dtype)
    elif actual.dtype.kind == "c":
        good = _near(actual, expected, np.finfo(actual.dtype), ulps, scale)
    else:
        good = _near_real(actual, expected, ulps, scale)
    if not np.all(good):
        at = tuple(int(k[0]) for k in np.nonzero(~np.asarray(good))) if actual.ndim else ()
        raise AssertionError(
            f"at {at}: {actual[at]!r}, expected {expected[at]!r} within {ulps} ulp (scale {scale})"
        )


def _near(actual: Array, expected: Array, info: Any, ulps: float, scale: Any) -> Any:
    size = np.where(np.isfinite(expected), np.abs(expected), 0)
    limit = ulps * float(info.eps) * np.maximum(size, scale) + float(info.smallest_normal)
    rounded = expected.astype(actual.dtype)
    parts = [(actual.real, expected.real, rounded.real), (actual.imag, expected.imag, rounded.imag)]
    return np.logical_and(
        *((a == r) | (np.isnan(a) & np.isnan(r)) | (np.abs(a - e) <= limit) for a, e, r in parts)
    )


def _near_real(actual: Array, expected: Array, ulps: float, scale: Any) -> Any:
    info = ml_dtypes.finfo(actual.dtype)
    got, rounded = actual.astype(np.float64), expected.astype(actual.dtype).astype(np.float64)
    limit = ulps * float(info.eps) * np.maximum(np.abs(expected), scale) + float(info.smallest_normal)
    exact = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    over = ~np.isfinite(got) & ~np.isnan(expected) & (np.abs(expected) + limit >= float(info.max))
    return exact | (np.abs(got - expected) <= limit) | over
