"""Windows as columns and back, and moving elements between channels and space.

Names, arguments and values are PyTorch's.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ...errors import ShapeError
from ..call_errors import with_form
from ..nn.convolution import Lengths, columns_of, spread
from .movement import permute_dims, reshape, slice
from .windows import fold as fold_windows

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


@with_form
def unfold(
    input: Tensor, kernel_size: Lengths, dilation: Lengths = 1, padding: Lengths = 0, stride: Lengths = 1
) -> Tensor:
    """Return all windows of ``([batch,] channels, height, width)`` as columns.

    The result is ``([batch,] channels * window, places)``. Raises ``ShapeError`` where no window fits.
    """
    if len(input.shape) not in (3, 4):
        raise ShapeError(f"unfold: 3 or 4 dimensions are needed, got shape {input.shape}.")
    if len(input.shape) == 3:
        alone = unfold(reshape(input, (1, *input.shape)), kernel_size, dilation, padding, stride)
        return reshape(alone, alone.shape[1:])
    size, step = spread("unfold", "kernel_size", kernel_size, 2, 1), spread("unfold", "stride", stride, 2, 1)
    edge, reach = spread("unfold", "padding", padding, 2), spread("unfold", "dilation", dilation, 2, 1)
    out = columns_of(input, size, step, edge, reach, 1)
    return reshape(out, (out.shape[0], *out.shape[2:]))


@with_form
def fold(
    input: Tensor, output_size: Lengths, kernel_size: Lengths, dilation: Lengths = 1, padding: Lengths = 0,
    stride: Lengths = 1,
) -> Tensor:  # fmt: skip
    """Return the sum of windows given as columns, ``([batch,] channels * window, places)``.

    The reverse of ``unfold`` where windows do not overlap: ``([batch,] channels, *output_size)``. Raises
    ``ShapeError`` where the columns do not come from such a shape.
    """
    if len(input.shape) not in (2, 3):
        raise ShapeError(f"fold: 2 or 3 dimensions are needed, got shape {input.shape}.")
    if len(input.shape) == 2:
        whole = reshape(input, (1, *input.shape))
        alone = fold(whole, output_size, kernel_size, dilation, padding, stride)
        return reshape(alone, alone.shape[1:])
    space = spread("fold", "output_size", output_size, 2, 1)
    size, step = spread("fold", "kernel_size", kernel_size, 2, 1), spread("fold", "stride", stride, 2, 1)
    edge, reach = spread("fold", "padding", padding, 2), spread("fold", "dilation", dilation, 2, 1)
    padded = tuple(n + 2 * p for n, p in zip(space, edge, strict=True))
    counts = tuple(
        (n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(padded, reach, size, step, strict=True)
    )
    batch, depth, places = input.shape
    if min(counts) < 1 or depth % prod(size) or places != prod(counts):
        raise ShapeError(
            f"fold: columns of windows {size} over {space} have shape (batch, channels * {prod(size)},"
            f" {prod(counts)}), got {input.shape}."
        )
    channels = depth // prod(size)
    permuted = permute_dims(reshape(input, (batch, channels, *size, *counts)), (0, 1, 4, 5, 2, 3))
    whole = fold_windows(permuted, padded, step, reach)
    return slice(whole, (0, 0, *edge), (batch, channels, *space), (1,) * 4)


@with_form
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Return ``(*, channels * r * r, height, width)`` as ``(*, channels, height * r, width * r)``.

    Shi et al. 2016. Raises ``ShapeError`` where the square of the factor does not divide the channels.
    """
    r = upscale_factor
    if len(input.shape) < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: (*, channels, height, width) with channels that {r} squared divides is needed,"
            f" got shape {input.shape}."
        )
    *lead, channels, height, width = input.shape
    depth, rank = channels // (r * r), len(lead)
    apart = reshape(input, (*lead, depth, r, r, height, width))
    order = (*range(rank), *(rank + k for k in (0, 3, 1, 4, 2)))
    return reshape(permute_dims(apart, order), (*lead, depth, height * r, width * r))


@with_form
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Return ``(*, channels, height * r, width * r)`` as ``(*, channels * r * r, height, width)``."""
    r = downscale_factor
    if len(input.shape) < 3 or r < 1 or input.shape[-2] % r or input.shape[-1] % r:
        raise ShapeError(
            f"pixel_unshuffle: (*, channels, height, width) with a height and width that {r} divides is"
            f" needed, got shape {input.shape}."
        )
    *lead, channels, height, width = input.shape
    rank = len(lead)
    apart = reshape(input, (*lead, channels, height // r, r, width // r, r))
    order = (*range(rank), *(rank + k for k in (0, 2, 4, 1, 3)))
    return reshape(permute_dims(apart, order), (*lead, channels * r * r, height // r, width // r))


@with_form
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Return ``(batch, channels, *space)`` with the channels of ``groups`` groups interleaved."""
    if len(input.shape) < 3 or groups < 1 or input.shape[1] % groups:
        raise ShapeError(
            f"channel_shuffle: (batch, channels, *space) with channels that {groups} group(s) divide is"
            f" needed, got shape {input.shape}."
        )
    batch, channels, *space = input.shape
    apart = reshape(input, (batch, groups, channels // groups, *space))
    order = (0, 2, 1, *range(3, len(apart.shape)))
    return reshape(permute_dims(apart, order), input.shape)
