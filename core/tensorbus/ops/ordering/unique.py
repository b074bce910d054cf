"""The distinct elements of a tensor: array API standard 2025.12, section "Set Functions".

All of them wait for the device, because lengths depend on values. NaNs are distinct from each other; -0.0 and
0.0 are one element, shown as the one that comes first. Elements come in ascending order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...dtypes import definition as dt
from ...dtypes.definition import plain
from ...dtypes.promotion import promote, promote_scalar
from ..call_errors import with_form
from ..creation.creation import full, ones, zeros
from ..definition import table
from ..elementwise.arithmetic import minimum
from ..elementwise.comparison import equal, not_equal
from ..elementwise.family import Operand
from ..elementwise.where_cast import cast
from ..indexing.gather_scatter import gather
from ..indexing.nonzero import flatnonzero
from ..indexing.take_along_axis import scatter_along_axis
from ..movement.movement import concat, reshape
from ..reduction.reduction import any as any_
from ..reduction.scan import cut, sum_scan
from .search import searchsorted
from .sorting import argsort, sort


class UniqueAll(NamedTuple):
    """Distinct values, where each comes first, which one each element is, and how often each occurs."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """Distinct values, and how often each occurs."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """Distinct values, and which one each element is."""

    values: Any
    inverse_indices: Any


def _flat(x: Any) -> Any:
    return reshape(x, (x.size,))


def _order(flat: Any) -> Any:
    """Return the indices that sort a line; complex numbers by their real, then by their imaginary parts."""
    if not flat.dtype.is_complex:
        return argsort(flat)
    by_imaginary = argsort(table["imag"](flat))
    return gather(by_imaginary, argsort(gather(table["real"](flat), by_imaginary)))


def _starts(line: Any) -> Any:
    """Return where a sorted line holds another element than before."""
    length = line.shape[0]
    if length < 2:
        return ones((length,), dtype=dt.bool_, device=line.device)
    changed = not_equal(cut(line, 0, 1, length), cut(line, 0, 0, length - 1))
    return concat([ones((1,), dtype=dt.bool_, device=line.device), changed])


@with_form
def unique_all(x: Any, /) -> UniqueAll:
    """Return the distinct elements, where each comes first, which one each element is, and how often each is.

    The first of the named tuple are ``values`` in the dtype of ``x``; ``indices`` into the flattened tensor,
    ``inverse_indices`` in the shape of ``x`` and ``counts`` are int64.

    >>> import tensorbus as tb
    >>> found = tb.unique_all(tb.asarray([3, 1, 3]))
    >>> found.values.tolist(), found.indices.tolist(), found.inverse_indices.tolist(), found.counts.tolist()
    ([1, 3], [1, 0], [1, 0, 1], [1, 2])
    """
    flat = _flat(x)
    order = _order(flat)
    line = gather(flat, order)
    start = _starts(line)
    places = flatnonzero(start)
    group = sum_scan(start) - 1
    inverse = scatter_along_axis(zeros(flat.shape, dtype=dt.int64, device=x.device), order, group, axis=0)
    ends = concat([places, full((1,), flat.shape[0], dtype=dt.int64, device=x.device)])
    count = places.shape[0]
    counts = cut(ends, 0, 1, count + 1) - cut(ends, 0, 0, count)
    return UniqueAll(gather(line, places), gather(order, places), reshape(inverse, x.shape), counts)


@with_form
def unique_counts(x: Any, /) -> UniqueCounts:
    """Return the distinct elements as ``values``, and how often each occurs as ``counts``."""
    result = unique_all(x)
    return UniqueCounts(result.values, result.counts)


@with_form
def unique_inverse(x: Any, /) -> UniqueInverse:
    """Return the distinct elements as ``values``, and which one each element is as ``inverse_indices``."""
    result = unique_all(x)
    return UniqueInverse(result.values, result.inverse_indices)


@with_form
def unique_values(x: Any, /) -> Any:
    """Return the distinct elements, in ascending order.

    >>> import tensorbus as tb
    >>> tb.unique_values(tb.asarray([[2, 1], [1, 2]])).tolist()
    [1, 2]
    """
    flat = _flat(x)
    line = gather(flat, _order(flat)) if flat.dtype.is_complex else sort(flat)
    return gather(line, flatnonzero(_starts(line)))


@with_form
def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> Any:
    """Return whether each element of ``x1`` is one of ``x2``; with ``invert`` whether it is not.

    One of the two may be a number. NaN is never in anything.

    >>> import tensorbus as tb
    >>> tb.isin(tb.asarray([1, 2, 3]), tb.asarray([3, 1])).tolist()
    [True, False, True]
    """
    x1, x2 = _number(x1), _number(x2)
    if isinstance(x1, (bool, int, float, complex)):
        x1 = full((), x1, dtype=promote_scalar(x2.dtype, type(x1)), device=x2.device)
    member = equal(x1, x2) if isinstance(x2, (bool, int, float, complex)) else _among(x1, _flat(x2))
    return table["logical_not"](member) if invert else member


def _number(x: Any) -> Any:
    """Return a number of Python's own for one of NumPy's; whatever else is given comes back as it is."""
    single = hasattr(x, "item") and getattr(x, "shape", None) == () and not hasattr(type(x), "_vtype")
    return x.item() if single else plain(x)


def _among(x: Any, flat: Any) -> Any:
    count = flat.shape[0]
    if count == 0:
        return zeros(x.shape, dtype=dt.bool_, device=x.device)
    common = promote(x.dtype, flat.dtype)
    x, flat = cast(x, common), cast(flat, common)
    if common.is_complex:
        return any_(equal(reshape(x, (*x.shape, 1)), flat), axis=-1)
    line = sort(flat)
    place = minimum(searchsorted(line, x), count - 1)
    return equal(gather(line, place), x)
