"""Places of elements that are not zero: results whose length depends on values, so that Python waits."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes import definition as dt
from ...errors import ShapeError
from ..call_errors import with_form
from ..elementwise.where_cast import cast
from ..movement.movement import concat, reshape, slice
from ..ordering.sorting import argsort
from ..reduction.reduction import count_nonzero

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def flatnonzero(x: Any) -> Any:
    """Return the places in C order where ``x`` is not zero, part of a longer tensor. Waits for the device."""
    hit = reshape(x if x.dtype is dt.bool_ else cast(x, dt.bool_), (-1,) if prod(x.shape) else (0,))
    count = count_nonzero(hit)
    order = argsort(hit, descending=True)
    return slice(order, (0,), (int(count),), (1,))


@with_form
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return one int64 tensor an axis with the places where ``x`` is not zero, in C order.

    Waits for the device, because the result's length depends on the values.
    """
    if not x.shape:
        raise ShapeError("nonzero: a 0-dimensional tensor has no axes; reshape it to (1,) first.")
    flat = flatnonzero(x)
    if len(x.shape) == 1:
        return (flat + 0,)  # a copy, which does not keep the longer tensor alive
    result, block = [], prod(x.shape)
    for k, n in enumerate(x.shape):
        block = block // max(n, 1)
        place = flat // block if block > 1 else flat + 0
        result.append(place % n if k and n else place)
    return tuple(result)


@with_form
def argwhere(x: Tensor, /) -> Tensor:
    """Return the places where ``x`` is not zero as rows of an int64 matrix, in C order.

    One column for each axis: none of a 0-dimensional tensor. Waits for the device.

    >>> import tensorbus as tb
    >>> tb.argwhere(tb.asarray([[0, 1], [1, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    if not x.shape:
        places = flatnonzero(x)
        return reshape(slice(places, (0,), (0,), (1,)), (places.shape[0], 0))
    return concat([reshape(line, (line.shape[0], 1)) for line in nonzero(x)], axis=1)
