"""Searching in sorted values, and counting what falls between them.

``searchsorted`` follows the array API standard 2025.12, section "Searching Functions"; the other names are
PyTorch's.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ...dtypes import definition as dt
from ...dtypes.definition import DType, Scalar
from ...dtypes.promotion import common_dtype, promote_scalar
from ...errors import ArgumentError, DtypeError, ShapeError
from .. import sharding_rules
from ..batching_rules import spread
from ..call_errors import with_form
from ..creation.creation import full, linspace, ones_like, zeros, zeros_like
from ..definition import Op, Spec, table
from ..elementwise.comparison import equal, isnan, less, less_equal, logical_and, logical_not, logical_or
from ..elementwise.family import Operand
from ..elementwise.where_cast import cast, where
from ..indexing.gather_scatter import gather
from ..indexing.take_along_axis import scatter_along_axis, take_along_axis
from ..movement.movement import reshape
from ..reduction.reduction import max, min, sum
from ..reduction.scan import diff
from .sorting import ORDERED

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

SIDES = ("left", "right")


def _infer(specs: tuple[Spec, ...], *, side: str) -> Spec:
    line, values = specs
    if side not in SIDES:
        raise ArgumentError(f"searchsorted: side must be 'left' or 'right', got {side!r}.")
    if not line.shape or (len(line.shape) > 1 and line.shape[:-1] != values.shape[:-1]):
        raise ShapeError(
            f"searchsorted: sorted values of shape {line.shape} must have 1 dimension, or all but their last"
            f" one must be those of the values to place, {values.shape}."
        )
    return Spec(values.shape, dt.default_int)


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    common = common_dtype(operand_dtypes)
    if common not in ORDERED:
        raise DtypeError(f"searchsorted: not defined for {common}, which has no order.")
    return (common, common)


def _goes_right(probed: Any, value: Any, side: str) -> Any:
    """Return whether ``value`` belongs behind ``probed``; NaN is behind all numbers."""
    behind = less(probed, value) if side == "left" else less_equal(probed, value)
    if not value.dtype.is_floating:
        return behind
    last = isnan(value)
    if side == "left":
        last = logical_and(last, logical_not(isnan(probed)))
    return logical_or(behind, last)


def _search(line: Any, values: Any, side: str) -> Any:
    """Add up powers of two, the largest first, as long as the value belongs behind what lies before them."""
    length = line.shape[-1]
    place = zeros(values.shape, dtype=dt.int64, device=values.device)
    for bit in reversed(range(length.bit_length())):
        further = place + (1 << bit)
        fits = less_equal(further, length)
        at = where(fits, further - 1, 0)
        probed = gather(line, at) if len(line.shape) == 1 else take_along_axis(line, at, axis=-1)
        go = logical_and(fits, _goes_right(probed, values, side))
        place = where(go, further, place)
    return place


def _batch(operands: Any, batched: Any, side: str) -> Any:
    """The rule of batches: a line for all serves values of any shape, lines of their own serve rows."""
    line, values = operands
    if not batched[0] and len(line.shape) == 1:
        return table.run("searchsorted", operands, {"side": side})
    line, values = spread(operands, batched)
    rows = values if len(line.shape) > 2 else reshape(values, (values.shape[0], prod(values.shape[1:])))
    return reshape(table.run("searchsorted", (line, rows), {"side": side}), values.shape)


def _arguments(
    line: Operand, values: Operand, /, *, side: str = "left"
) -> tuple[tuple[Operand, ...], dict[str, Any]]:
    return (line, values), {"side": side}


search_op: Op[...] = table.add(
    Op(
        name="searchsorted",
        family="search",
        operands=("line", "values"),
        arguments=_arguments,
        compute=_compute,
        infer=_infer,
        decompose=_search,
        batch=_batch,
        shard=sharding_rules.searched,
        dtypes=ORDERED,
        doc="Where ``values`` belong in sorted values: a 1-dimensional tensor, or rows along the last axis.",
    )
)


@with_form
def searchsorted(
    x1: Operand, x2: Operand, /, *, side: str | None = None, sorter: Operand | None = None,
    right: bool = False, out_int32: bool = False,
) -> Any:  # fmt: skip
    """Return the int64 indices at which the values ``x2`` keep ``x1`` sorted, if put before them.

    ``x1`` is 1-dimensional, or has rows along its last axis that the rows of ``x2`` belong to. Of equal
    values 'left' is before the first, 'right' behind the last; NaN comes behind all numbers. ``sorter`` holds
    indices that sort ``x1`` (from ``argsort``). ``x2`` may be a number. ``right`` is another word for the
    side 'right', and ``out_int32`` asks for int32. Raises ``ArgumentError`` for another side, and for
    ``right`` with the side 'left'.

    >>> import tensorbus as tb
    >>> tb.searchsorted(tb.asarray([1, 3, 5]), tb.asarray([3, 6])).tolist()
    [1, 3]
    """
    if right and side == "left":
        raise ArgumentError("searchsorted: right=True and side='left' contradict each other; give one.")
    if sorter is not None:
        if sorter.shape != x1.shape:
            raise ShapeError(
                f"searchsorted: a sorter of shape {sorter.shape} was given for values of shape {x1.shape}."
            )
        x1 = take_along_axis(x1, sorter, axis=-1)
    if isinstance(x2, (bool, int, float)):
        x2 = full((), x2, dtype=promote_scalar(x1.dtype, type(x2)), device=x1.device)
    places = search_op(x1, x2, side=side or ("right" if right else "left"))
    return cast(places, dt.int32) if out_int32 else places


@with_form
def bucketize(x: Any, boundaries: Any, /, *, right: bool = False, out_int32: bool = False) -> Any:
    """Return the number of the bucket between sorted ``boundaries`` that each element of ``x`` falls into.

    A boundary belongs to the bucket before it, with ``right`` to the one behind it. Numbers are int64, with
    ``out_int32`` int32.

    >>> import tensorbus as tb
    >>> tb.bucketize(tb.asarray([0.5, 1.0, 9.0]), tb.asarray([1.0, 2.0])).tolist()
    [0, 0, 2]
    """
    return searchsorted(boundaries, x, right=right, out_int32=out_int32)


@with_form
def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Return how often each number from 0 on stands in a 1-dimensional integer tensor, or its ``weights``.

    Weights of float32 add up in it, all others in float64. The result has ``minlength`` elements or as many
    as it takes, so it waits for the device. Raises
    ``ArgumentError`` for negative numbers.

    >>> import tensorbus as tb
    >>> tb.bincount(tb.asarray([0, 2, 2])).tolist()
    [1, 0, 2]
    """
    if len(x.shape) != 1 or not x.dtype.is_integer:
        raise DtypeError(
            f"bincount: a 1-dimensional tensor of integers is needed, got {x.dtype} of shape {x.shape}."
        )
    if minlength < 0:
        raise ArgumentError(f"bincount: minlength must be >= 0, got {minlength}.")
    if weights is not None and weights.shape != x.shape:
        raise ShapeError(f"bincount: weights of shape {weights.shape} were given for shape {x.shape}.")
    length = minlength
    if x.shape[0]:
        if int(min(x)) < 0:
            raise ArgumentError(f"bincount: numbers must be >= 0, got {int(min(x))}.")
        length = length if length > int(max(x)) else int(max(x)) + 1
    values = ones_like(x, dtype=dt.int64) if weights is None else weights
    if weights is not None and weights.dtype not in (dt.float32, dt.float64):
        values = cast(weights, dt.float64)
    none = zeros((length,), dtype=values.dtype, device=x.device)
    return scatter_along_axis(none, x, values, axis=0, mode="add")


class Histogram(NamedTuple):
    """Counts of values in each bin, and the edges of the bins, one more than there are bins."""

    hist: Any
    bin_edges: Any


@with_form
def histogram(
    x: Any, /, bins: int | Tensor = 100, *, range: tuple[Scalar, Scalar] | None = None, weight: Any = None,
    density: bool = False,
) -> Histogram:  # fmt: skip
    """Return how many elements of ``x``, or how much of ``weight``, fall into each bin, and the bins' edges.

    ``bins`` is a number of bins of equal width within ``range`` (by default from the smallest to the largest
    element, which waits for the device), or a 1-dimensional tensor of their increasing edges. A bin holds its
    lower edge, the last one both. Elements outside are left out. With ``density`` the result is divided by
    the total and the bins' widths. Results have the dtype of ``x``, the default float for integers.

    >>> import tensorbus as tb
    >>> tb.histogram(tb.asarray([1.0, 2.0, 2.0]), 2, range=(0.0, 4.0)).hist.tolist()
    [1.0, 2.0]
    """
    dtype = x.dtype if x.dtype.is_floating else dt.default_float
    flat = cast(reshape(x, (x.size,)), dtype)
    edges = bins if hasattr(bins, "shape") else _edges(flat, bins, range)
    if len(edges.shape) != 1 or edges.shape[0] < 2:
        raise ShapeError(f"histogram: edges are 1-dimensional and 2 or more, got shape {edges.shape}.")
    edges, count = cast(edges, dtype), edges.shape[0] - 1
    place = searchsorted(edges, flat, side="right") - 1
    place = where(equal(flat, edges[-1]), count - 1, place)
    inside = logical_and(less_equal(0, place), less(place, count))
    if weight is not None and weight.shape != x.shape:
        raise ShapeError(f"histogram: weights of shape {weight.shape} were given for shape {x.shape}.")
    amount = ones_like(flat) if weight is None else cast(reshape(weight, flat.shape), dtype)
    place, amount = where(inside, place, 0), where(inside, amount, zeros_like(amount))
    empty = zeros((count,), dtype=dtype, device=x.device)
    hist = scatter_along_axis(empty, place, amount, axis=0, mode="add")
    return Histogram(hist / sum(hist) / diff(edges) if density else hist, edges)


def _edges(flat: Any, bins: int, range: tuple[Scalar, Scalar] | None) -> Any:
    if bins < 1:
        raise ArgumentError(f"histogram: at least 1 bin is needed, got {bins}.")
    low: Any
    high: Any
    low, high = range or ((float(min(flat)), float(max(flat))) if flat.size else (0.0, 1.0))
    if not float("-inf") < low <= high < float("inf"):
        raise ArgumentError(f"histogram: the range must be finite and increasing, got ({low}, {high}).")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, bins + 1, dtype=flat.dtype, device=flat.device)
