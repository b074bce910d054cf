"""Integrals by the trapezoidal rule, whole and running. Names are PyTorch's and SciPy's."""

from __future__ import annotations

from typing import Any

from ...dtypes import definition as dt
from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from ..elementwise.family import broadcast_shapes
from ..elementwise.where_cast import cast
from ..movement.family import normalize_axis
from ..movement.movement import reshape
from .reduction import sum
from .scan import cumulative_sum, cut


def _areas(name: str, y: Any, x: Any, dx: float | None, axis: int) -> tuple[Any, int]:
    """Return the areas between neighbours along ``axis``, and the axis counted from the front."""
    if x is not None and dx is not None:
        raise ArgumentError(f"{name}: either the places x or their distance dx is given, not both.")
    place = normalize_axis(name, axis, len(y.shape))
    if not y.dtype.is_inexact:  # so that sums of two do not wrap
        y = cast(y, dt.default_float if y.dtype is dt.uint64 else dt.int64)
    sides = _neighbours(y, place)
    if x is None:
        return (sides[0] + sides[1]) * (0.5 if dx is None else dx * 0.5), place
    if len(x.shape) == 1 and len(y.shape) > 1:
        if x.shape[0] != y.shape[place]:
            raise ShapeError(
                f"{name}: {x.shape[0]} places were given for axis {place} of shape {y.shape}; as many as its"
                f" length are needed."
            )
        x = reshape(x, tuple(-1 if k == place else 1 for k in range(len(y.shape))))
    along = place - len(y.shape)
    if not x.dtype.is_inexact:  # so that differences have a sign
        x = cast(x, dt.int64)
    ends = _neighbours(x, normalize_axis(name, along, len(x.shape)))
    widths = ends[1] - ends[0]
    rank = max(len(widths.shape), len(y.shape))
    broadcast_shapes(widths.shape, sides[0].shape)
    return (sides[0] + sides[1]) * 0.5 * widths, rank + along


def _neighbours(x: Any, axis: int) -> tuple[Any, Any]:
    """Return all elements but the last along ``axis``, and all but the first."""
    length = x.shape[axis]
    last = max(length - 1, 0)
    return cut(x, axis, 0, last), cut(x, axis, length - last, length)


@with_form
def trapezoid(y: Any, x: Any = None, /, *, dx: float | None = None, axis: int = -1) -> Any:
    """Return the integral of ``y`` along ``axis`` by the trapezoidal rule.

    ``x`` are the places of the values, a tensor of one axis or one that broadcasts with ``y``; without it
    they are ``dx`` apart, 1 by default. Of fewer than two values the integral is 0; of integers it is a
    float, and nothing wraps. Raises ``ShapeError`` where places and values do not fit,
    ``ArgumentError`` where both ``x`` and ``dx`` are given.

    >>> import tensorbus as tb
    >>> tb.trapezoid(tb.asarray([1.0, 2.0, 3.0]), dx=2.0).item()
    8.0
    """
    areas, place = _areas("trapezoid", y, x, dx, axis)
    return sum(areas, axis=place)


@with_form
def cumulative_trapezoid(y: Any, x: Any = None, /, *, dx: float | None = None, axis: int = -1) -> Any:
    """Return the running integral of ``y`` along ``axis``, one element shorter than it.

    Arguments and errors are those of ``trapezoid``.

    >>> import tensorbus as tb
    >>> tb.cumulative_trapezoid(tb.asarray([1.0, 2.0, 3.0])).tolist()
    [1.5, 4.0]
    """
    areas, place = _areas("cumulative_trapezoid", y, x, dx, axis)
    return cumulative_sum(areas, axis=place)
