"""The rows of a padded batch one behind the other, without padding: what projections in inference work on.

Projections, normalization and feed-forward networks take rows as they come, so that padding costs them
nothing. How many rows there are depends on values, so that Python waits for the device. In a captured program
padding lies behind the other rows, and an op that the program calls finds out at each run how many are to be
multiplied: masks may differ from call to call, and shapes do not.
"""

from __future__ import annotations

from typing import Final

from ...backend_interface.capabilities import HasNoElements
from ...devices.stream import has_streams
from ...dispatch.modes import base_device, is_guarded, is_value_mode
from ...dtypes import definition as dt
from ...dtypes.info import result_type
from ...library.custom_op import custom_op
from ...ops.creation.creation import zeros
from ...ops.elementwise.arithmetic import maximum, minimum
from ...ops.elementwise.where_cast import cast, where
from ...ops.indexing.gather_scatter import gather
from ...ops.indexing.nonzero import flatnonzero
from ...ops.matmul.linear import linear
from ...ops.movement.movement import pad, reshape
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


def can_read(*tensors: Tensor, breaks: bool) -> bool:
    """Return whether Python may have values of tensors here: how many rows there are is one of them.

    Not where they stand for others or have no elements, and while a program is captured only where the
    graph ``breaks`` for it.
    """
    active = active_tracer()
    if active is not None and (active.fullgraph or not breaks):
        return False
    return _have_values(*tensors)


def _have_values(*tensors: Tensor) -> bool:
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
    if products < _FEWEST_PRODUCTS or not _have_values(*read):
        return False
    return products >= _FEWEST_PRODUCTS_IN_STREAMS or not has_streams(base_device(read[0].device).runtime)


@custom_op("nn::linear_of_first_rows")
def linear_of_first_rows(x: Tensor, count: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``linear`` of the first ``count`` rows of ``(rows, width)``, an integer tensor; 0 in the others.

    ``count`` is read where the op runs, so that nothing is computed of the other rows.
    """
    rows, number = x.shape[0], int(count)
    if not number:
        kind = result_type(x, weight) if bias is None else result_type(x, weight, bias)
        return zeros((rows, weight.shape[0]), dtype=kind, device=x.device)
    out = linear(x if number == rows else x[:number], weight, bias)
    return out if number == rows else pad(out, (0, 0), (rows - number, 0))


@linear_of_first_rows.register_fake
def _(x: Tensor, count: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return linear(x, weight, bias)


linear_of_first_rows.register_autocast("narrow")


class PackedRows:
    """The places of the rows of a ``(batch, length)`` batch once its padding is left out.

    ``keep``, bool, says which places are no padding. Their number, ``count``, depends on values, so that
    Python waits for the device; with ``captured`` it is a tensor, and padding lies behind what counts.
    """

    def __init__(self, keep: Tensor, captured: bool = False) -> None:
        self.batch, self.length = keep.shape
        self.keep, flat = keep, reshape(keep, (-1,))
        each = sum(cast(keep, dt.int64), axis=1, keepdims=True)
        stop = cumulative_sum(each, axis=0)
        number = reshape(cumulative_sum(cast(flat, dt.int64)), keep.shape) - 1
        self.places = argsort(cast(flat, dt.uint8), descending=True) if captured else flatnonzero(keep)
        self.count: int | Tensor = sum(each) if captured else self.places.shape[0]
        # A place that is padding stands for a row of its own sequence: what it holds is masked, but no
        # other sequence may have put a nan there.
        inside = minimum(maximum(number, stop - each), maximum(stop - 1, stop - each))
        last = max(self.count - 1, 0) if isinstance(self.count, int) else maximum(self.count - 1, 0)
        self.rows = reshape(minimum(inside, last), (-1,))

    def pack(self, x: Tensor) -> Tensor:
        """Return the rows of ``(batch, length, width)`` that are no padding, ``(count, width)``."""
        return gather(reshape(x, (self.batch * self.length, x.shape[2])), self.places)

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``linear`` of packed rows, those that count."""
        if isinstance(self.count, int):
            return linear(x, weight, bias)
        projected: Tensor = linear_of_first_rows(x, self.count, weight, bias)
        return projected

    def unpack(self, x: Tensor) -> Tensor:
        """Return ``(batch, length, width)`` of rows, 0 where there is padding."""
        shape = (self.batch, self.length, x.shape[1])
        if isinstance(self.count, int) and not self.count:
            return zeros(shape, dtype=x.dtype, device=x.device)
        padded = reshape(gather(x, self.rows), shape)
        unpacked: Tensor = where(reshape(self.keep, (*shape[:2], 1)), padded, 0)
        return unpacked
