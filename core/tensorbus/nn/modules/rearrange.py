"""Layers that move elements: between axes, between channels and space, and to other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ShapeError
from ...ops.movement.family import normalize_axis
from ...ops.movement.movement import reshape
from ...ops.nn.convolution import Lengths
from ...tensor.tensor import Tensor
from .. import functional
from ..module import Module


class Flatten(Module):
    """Join the axes from ``start_dim`` to ``end_dim``: ``(batch, *rest)`` to ``(batch, product)``."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` with fewer axes."""
        out: Tensor = functional.flatten(input, self.start_dim, self.end_dim)
        return out

    def extra_repr(self) -> str:
        """Return the axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split axis ``dim`` into axes of the lengths ``unflattened_size``, one of which may be -1.

    >>> import tensorbus as tb
    >>> tb.nn.Unflatten(1, (2, 3))(tb.ones((4, 6))).shape
    (4, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` with more axes. Raises ``ShapeError`` where the lengths do not multiply to it."""
        axis = normalize_axis("Unflatten", self.dim, input.ndim)
        sizes, known = list(self.unflattened_size), 1
        for n in sizes:
            known *= n if n != -1 else 1
        if sizes.count(-1) == 1 and known and input.shape[axis] % known == 0:
            sizes[sizes.index(-1)] = input.shape[axis] // known
            known = input.shape[axis]
        if -1 in sizes or known != input.shape[axis]:
            raise ShapeError(
                f"Unflatten: axis {axis} of shape {input.shape} does not split into {self.unflattened_size}."
            )
        return reshape(input, (*input.shape[:axis], *sizes, *input.shape[axis + 1 :]))

    def extra_repr(self) -> str:
        """Return the axis and the lengths."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Unfold(Module):
    """All windows of ``([batch,] channels, height, width)`` as columns."""

    def __init__(
        self, kernel_size: Lengths, dilation: Lengths = 1, padding: Lengths = 0, stride: Lengths = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """Return the columns."""
        return functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding},"
            f" stride={self.stride}"
        )


class Fold(Module):
    """The sum of windows given as columns: the reverse of ``Unfold`` where they do not overlap."""

    def __init__(
        self, output_size: Lengths, kernel_size: Lengths, dilation: Lengths = 1, padding: Lengths = 0,
        stride: Lengths = 1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: Tensor) -> Tensor:
        """Return the image."""
        return functional.fold(
            input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride
        )

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation},"
            f" padding={self.padding}, stride={self.stride}"
        )


class PixelShuffle(Module):
    """Channels to space: ``(*, channels * r * r, h, w)`` to ``(*, channels, h * r, w * r)``."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the larger image."""
        return functional.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """Return the factor."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Space to channels: the reverse of ``PixelShuffle``."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the smaller image."""
        return functional.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """Return the factor."""
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """The channels of several groups interleaved (Zhang, Zhou, Lin, Sun 2018)."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` with its channels in another order."""
        return functional.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """Return the number of groups."""
        return f"groups={self.groups}"


class Upsample(Module):
    """``(batch, channels, *space)`` resized to ``size`` or by ``scale_factor``: see ``interpolate``.

    >>> import tensorbus as tb
    >>> tb.nn.Upsample(scale_factor=2)(tb.ones((1, 1, 3, 4))).shape
    (1, 1, 6, 8)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: Any = None, mode: str = "nearest",
        align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.size = size
        several = isinstance(scale_factor, (tuple, list))
        factors = [None if f is None else float(f) for f in (scale_factor if several else [scale_factor])]
        self.scale_factor: Any = tuple(factors) if several else factors[0]
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:
        """Return the resized input."""
        return functional.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        """Return the settings."""
        size = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{size}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """``Upsample`` of images by the nearest element."""

    def __init__(self, size: int | Sequence[int] | None = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """``Upsample`` of images, bilinear, with the corners on each other."""

    def __init__(self, size: int | Sequence[int] | None = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
