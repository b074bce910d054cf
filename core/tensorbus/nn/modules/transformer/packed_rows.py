"""The rows of a padded batch one behind the other, without padding: what inference works on.

Projections, normalization and feed-forward networks take rows as they come, so that padding costs them
nothing. Attention takes the batch again, for a moment; blocks of it that are padding are not computed.
"""

from __future__ import annotations

from ....backend_interface.capabilities import HasNoElements
from ....dispatch.modes import base_device, is_guarded, is_value_mode
from ....dtypes import definition as dt
from ....ops.creation.creation import zeros
from ....ops.elementwise.arithmetic import maximum, minimum
from ....ops.elementwise.where_cast import cast, where
from ....ops.indexing.gather_scatter import gather
from ....ops.indexing.nonzero import flatnonzero
from ....ops.movement.movement import permute_dims, reshape
from ....ops.reduction.reduction import sum
from ....ops.reduction.scan import cumulative_sum
from ....tensor.tensor import Tensor
from ....tracing.active_tracer import active_tracer, untraced
from ...attention.tiles import padding_blocks
from ...functional.attention import merged_mask, padded_attention


def encoder_mask(
    mask: Tensor | None, padding: Tensor, keep: Tensor, heads: int, like: Tensor
) -> Tensor:  # fmt: skip
    """Return what attention of a batch to itself is masked by, of four axes; ``mask`` is that of scores."""
    batch, length = keep.shape
    if mask is None and not padding.dtype.is_floating:
        return reshape(keep, (batch, 1, 1, length))
    merged = merged_mask(mask, padding, batch, heads, length, length, like)
    assert merged is not None
    return merged


def can_read(*tensors: Tensor, breaks: bool) -> bool:
    """Return whether Python may have values of tensors here: how many rows there are is one of them.

    Not where they stand for others or have no elements, and while a program is captured only where the
    graph ``breaks`` for it.
    """
    active = active_tracer()
    if active is not None and (active.fullgraph or not breaks):
        return False
    return untraced(is_guarded) and not any(
        is_value_mode(x.device.type) or isinstance(base_device(x.device).runtime, HasNoElements)
        for x in tensors
    )


class PackedRows:
    """Where the rows of a batch of ``(batch, length)`` places lie once its padding is left out.

    ``mask`` is what attention is masked by, of four axes. Waits for the device, because the number of rows
    depends on values.
    """

    def __init__(self, keep: Tensor, mask: Tensor) -> None:
        self.batch, self.length = keep.shape
        self.mask, self.keep, self.blocks = mask, keep, padding_blocks(keep)
        self.places = flatnonzero(keep)
        self.count = self.places.shape[0]
        each = sum(cast(keep, dt.int64), axis=1, keepdims=True)
        stop = cumulative_sum(each, axis=0)
        number = reshape(cumulative_sum(cast(reshape(keep, (-1,)), dt.int64)), keep.shape) - 1
        # A place that is padding stands for a row of its own sequence: what it holds is masked, but no
        # other sequence may have put a nan there.
        inside = minimum(maximum(number, stop - each), maximum(stop - 1, stop - each))
        self.rows = reshape(minimum(inside, max(self.count - 1, 0)), (-1,))

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

    def attend(self, projected: Tensor, heads: int) -> Tensor:
        """Return what each row's heads find, ``(count, width)``, of query, key and value side by side."""
        width = projected.shape[1] // 3
        batch = reshape(gather(projected, self.rows), (self.batch, self.length, 3, heads, -1))
        q, k, v = (permute_dims(batch[:, :, n], (0, 2, 1, 3)) for n in range(3))
        out = padded_attention(q, k, v, self.mask, self.blocks)
        flat = reshape(permute_dims(out, (0, 2, 1, 3)), (self.batch * self.length, width))
        return gather(flat, self.places)
