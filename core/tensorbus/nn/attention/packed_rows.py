"""The rows of a padded batch one behind the other, without padding: what layers in inference work on.

Projections, normalization and feed-forward networks take rows as they come, so that padding costs them
nothing. How many rows there are depends on values: Python waits for the device, and so does a captured
program when it runs (``control_flow.with_size``), which serves all masks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ...backend_interface.capabilities import HasNoElements
from ...control_flow import with_size
from ...control_flow.sized_runs import MIN_SIZE
from ...devices.stream import has_streams
from ...dispatch.modes import base_device, is_guarded, is_value_mode
from ...dtypes import definition as dt
from ...ops.creation.creation import zeros
from ...ops.elementwise.arithmetic import maximum, minimum
from ...ops.elementwise.where_cast import cast, where
from ...ops.indexing.gather_scatter import gather
from ...ops.indexing.nonzero import flatnonzero
from ...ops.movement.movement import reshape
from ...ops.ordering.sorting import argsort
from ...ops.reduction.reduction import sum
from ...ops.reduction.scan import cumulative_sum
from ...tensor.grad_mode import grad_enabled
from ...tensor.tensor import Tensor
from ...tracing.active_tracer import active_tracer, untraced

_FEWEST_PRODUCTS: Final = 1 << 25
"""Of fewer multiplications the dozen of small ops that find the rows take longer than half of them."""
_FEWEST_PRODUCTS_IN_STREAMS: Final = 1 << 31
"""The same of a device that works behind Python's back, which waits for it here and is ahead no more."""


def have_values(*tensors: Tensor) -> bool:
    """Return whether tensors have elements and do not stand for others, here or when a program runs."""
    return untraced(is_guarded) and not any(
        is_value_mode(x.device.type) or isinstance(base_device(x.device).runtime, HasNoElements)
        for x in tensors
    )


def is_worth_packing(products: int, operands: tuple[Tensor | None, ...], *read: Tensor) -> bool:
    """Return whether to leave padding out of a projection of ``operands``, ``products`` multiplications.

    Only in inference, where nothing is to be differentiated, and where the values of ``read`` can be had: in
    a captured program when it runs.
    """
    if grad_enabled.get() and any(x is not None and x.requires_grad for x in operands):
        return False
    if products < _FEWEST_PRODUCTS or not have_values(*read) or read[-1].size < MIN_SIZE:
        return False
    return products >= _FEWEST_PRODUCTS_IN_STREAMS or not has_streams(base_device(read[0].device).runtime)


class PackedRows:
    """The places of the rows of a ``(batch, length)`` batch once its padding is left out.

    ``keep``, bool, says which places are no padding. ``places`` are those, and ``rows`` the row that stands
    for each place.
    """

    def __init__(self, keep: Tensor, places: Tensor, rows: Tensor) -> None:
        self.keep, self.places, self.rows = keep, places, rows
        self.batch, self.length = keep.shape

    @property
    def count(self) -> int:
        """Number of rows."""
        count: int = self.places.shape[0]
        return count

    def pack(self, x: Tensor) -> Tensor:
        """Return the rows of ``(batch, length, width)`` that are no padding, ``(count, width)``."""
        return gather(reshape(x, (self.batch * self.length, x.shape[2])), self.places)

    def unpack(self, x: Tensor) -> Tensor:
        """Return ``(batch, length, width)`` of rows, 0 where there is padding."""
        shape = (self.batch, self.length, x.shape[1])
        if not self.count:
            return zeros(shape, dtype=x.dtype, device=x.device)
        padded = reshape(gather(x, self.rows), shape)
        unpacked: Tensor = where(reshape(self.keep, (*shape[:2], 1)), padded, 0)
        return unpacked


def of_packed_rows(
    function: Callable[..., Sequence[Tensor]], keep: Tensor, operands: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return ``function(rows, *operands)`` of the packed rows of a batch whose places are ``keep``.

    Their number depends on values: Python waits for the device. In a captured program the function has it
    as an open length, so that it must do what it does for any number, and one program serves all masks.
    """
    flat = reshape(keep, (-1,))
    each = sum(cast(keep, dt.int64), axis=1, keepdims=True)
    stop = cumulative_sum(each, axis=0)
    number = reshape(cumulative_sum(cast(flat, dt.int64)), keep.shape) - 1
    # A place that is padding stands for a row of its own sequence: what it holds is masked, but no
    # other sequence may have put a nan there.
    inside = minimum(maximum(number, stop - each), maximum(stop - 1, stop - each))
    if active_tracer() is None:
        places = flatnonzero(keep)
        rows = reshape(minimum(inside, max(places.shape[0] - 1, 0)), (-1,))
        return tuple(function(PackedRows(keep, places, rows), *operands))
    order = argsort(cast(flat, dt.uint8), descending=True)
    count = maximum(sum(each), MIN_SIZE)  # one or two places that are padding do no harm
    rows = reshape(minimum(inside, count - 1), (-1,))

    def of_first(n: Any, keep: Tensor, order: Tensor, rows: Tensor, *operands: Tensor) -> Sequence[Tensor]:
        return function(PackedRows(keep, order[:n], rows), *operands)

    return with_size(of_first, count, (keep, order, rows, *operands), most=flat.shape[0])
