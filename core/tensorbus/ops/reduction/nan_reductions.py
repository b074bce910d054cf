"""Reductions that leave NaN out, and those of two results at once. Names are NumPy's and PyTorch's."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...dtypes import definition as dt
from ...dtypes.definition import DType
from ..call_errors import with_form
from ..elementwise.arithmetic import divide
from ..elementwise.comparison import isnan
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..fused_function import fuse_in_eager
from ..ordering.sorting import quantiles
from .reduction import Axis, max, mean, min, std, sum, var


class Ends(NamedTuple):
    """The smallest and the largest element."""

    min: Any
    max: Any


class SpreadAndMean(NamedTuple):
    """A variance or standard deviation, and the mean."""

    spread: Any
    mean: Any


def _no_nan(x: Any) -> Any:
    """Return ``x`` with zeros for NaN, and which elements are none."""
    there = ~isnan(x)
    return where(there, x, 0), there


@with_form
@fuse_in_eager
def nansum(x: Any, /, axis: Axis = None, keepdims: bool = False, *, dtype: DType | str | None = None) -> Any:
    """Return the sum of the elements that are not NaN; 0 where none is left.

    Integers and bools, which are never NaN, add up as in ``sum``.

    >>> import tensorbus as tb
    >>> tb.nansum(tb.asarray([1.0, tb.nan, 2.0])).item()
    3.0
    """
    return sum(_no_nan(x)[0] if x.dtype.is_inexact else x, axis=axis, keepdims=keepdims, dtype=dtype)


@with_form
@fuse_in_eager
def nanmean(x: Any, /, axis: Axis = None, keepdims: bool = False, *, dtype: DType | str | None = None) -> Any:
    """Return the mean of the elements that are not NaN; NaN where none is left.

    It is computed in ``dtype`` where one is given; integers give the default float.

    >>> import tensorbus as tb
    >>> tb.nanmean(tb.asarray([[1.0, tb.nan], [3.0, 4.0]]), axis=1).tolist()
    [1.0, 3.5]
    """
    x = x if dtype is None else cast(x, dt.dtype(dtype))
    if not x.dtype.is_inexact:
        return mean(x, axis=axis, keepdims=keepdims)
    wide = widened(x)
    present, there = _no_nan(wide)
    count = cast(sum(there, axis=axis, keepdims=keepdims), wide.dtype)
    return narrowed(divide(sum(present, axis=axis, keepdims=keepdims), count), x.dtype)


@with_form
def nanmedian(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the median of the elements that are not NaN; NaN where none is left.

    As in ``median``, which is NumPy's, two in the middle give their mean. Integers give the default float.

    >>> import tensorbus as tb
    >>> tb.nanmedian(tb.asarray([4.0, tb.nan, 1.0])).item()
    2.5
    """
    return quantiles("nanmedian", x, 0.5, axis, keepdims, "midpoint", skip_nan=True)


@with_form
def nanquantile(
    x: Any, /, q: Any, axis: int | None = None, keepdims: bool = False, *, interpolation: str = "linear"
) -> Any:
    """Return the value below which the share ``q`` of the elements that are not NaN lies.

    Arguments and errors are those of ``quantile``. NaN where no element is left.

    >>> import tensorbus as tb
    >>> tb.nanquantile(tb.asarray([0.0, tb.nan, 1.0, 2.0]), 0.25).item()
    0.5
    """
    return quantiles("nanquantile", x, q, axis, keepdims, interpolation, skip_nan=True)


@with_form
def aminmax(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Ends:
    """Return the smallest and the largest element, as ``min`` and ``max`` of a named tuple; NaN if one is.

    >>> import tensorbus as tb
    >>> low, high = tb.aminmax(tb.asarray([3, 1, 2]))
    >>> low.item(), high.item()
    (1, 3)
    """
    return Ends(min(x, axis=axis, keepdims=keepdims), max(x, axis=axis, keepdims=keepdims))


@with_form
def var_mean(
    x: Any, /, axis: Axis = None, *, correction: float = 1.0, keepdims: bool = False
) -> SpreadAndMean:
    """Return the variance and the mean. As in PyTorch ``correction`` is 1; that of ``var`` is 0.

    >>> import tensorbus as tb
    >>> spread, middle = tb.var_mean(tb.asarray([1.0, 3.0]))
    >>> spread.item(), middle.item()
    (2.0, 2.0)
    """
    spread = var(x, axis=axis, correction=correction, keepdims=keepdims)
    return SpreadAndMean(spread, mean(x, axis=axis, keepdims=keepdims))


@with_form
def std_mean(
    x: Any, /, axis: Axis = None, *, correction: float = 1.0, keepdims: bool = False
) -> SpreadAndMean:
    """Return the standard deviation and the mean. As in PyTorch ``correction`` is 1; that of ``std`` is 0.

    >>> import tensorbus as tb
    >>> tb.std_mean(tb.asarray([1.0, 3.0]), correction=0).spread.item()
    1.0
    """
    spread = std(x, axis=axis, correction=correction, keepdims=keepdims)
    return SpreadAndMean(spread, mean(x, axis=axis, keepdims=keepdims))
