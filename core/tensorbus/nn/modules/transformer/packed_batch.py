"""A padded batch as the layers of an encoder take it in inference: its rows, and what attention needs.

Attention takes the batch again, for a moment; blocks of it that are padding are not computed.
"""

from __future__ import annotations

from ....ops.indexing.gather_scatter import gather
from ....ops.movement.movement import permute_dims, reshape
from ....tensor.tensor import Tensor
from ...attention.packed_rows import PackedRows
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


class PackedBatch:
    """The rows of a batch without its padding, and its attention to itself.

    ``mask`` is what attention is masked by, of four axes.
    """

    def __init__(self, rows: PackedRows, mask: Tensor) -> None:
        self.rows, self.mask, self.blocks = rows, mask, padding_blocks(rows.keep)

    def attend(self, projected: Tensor, heads: int) -> Tensor:
        """Return what each row's heads find, ``(count, width)``, of query, key and value side by side."""
        rows, width = self.rows, projected.shape[1] // 3
        batch = reshape(gather(projected, rows.rows), (rows.batch, rows.length, 3, heads, -1))
        q, k, v = (permute_dims(batch[:, :, n], (0, 2, 1, 3)) for n in range(3))
        out = padded_attention(q, k, v, self.mask, self.blocks)
        flat = reshape(permute_dims(out, (0, 2, 1, 3)), (rows.batch * rows.length, width))
        return gather(flat, rows.places)
