"""Transposed convolution layers over one, two and three axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError, ShapeError
from ....ops.nn.convolution import Lengths, spread
from ....tensor.tensor import Tensor
from ... import functional
from .windows import WindowLayer

_RUN: Final = {
    1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d,
}  # fmt: skip


class _ConvTranspose(WindowLayer):
    """Base of the layers of transposed convolutions."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Lengths, stride: Lengths = 1,
        padding: Lengths = 0, output_padding: Lengths = 0, groups: int = 1, bias: bool = True,
        dilation: Lengths = 1, padding_mode: str = "zeros", device: Device | str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        name, rank = type(self).__name__, self.rank
        self._set_windows(in_channels, out_channels, kernel_size, stride, dilation, groups)
        if padding_mode != "zeros":
            raise ArgumentError(f"{name}: padding_mode must be 'zeros', got {padding_mode!r}.")
        self.padding = spread(name, "padding", padding, rank)
        self.output_padding = spread(name, "output_padding", output_padding, rank)
        self.padding_mode = padding_mode
        self._set_parameters(in_channels, out_channels, bias, device, dtype)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Return the transposed convolution, of exactly ``output_size`` (its last axes) where it is given."""
        extra = self.output_padding if output_size is None else self._extra(input, tuple(output_size))
        return _RUN[self.rank](
            input, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation
        )

    def _extra(self, x: Tensor, target: tuple[int, ...]) -> tuple[int, ...]:
        least = tuple(
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(
                x.shape[-self.rank :], self.stride, self.padding, self.dilation, self.kernel_size, strict=True
            )
        )
        extra = tuple(a - b for a, b in zip(target[-self.rank :], least, strict=False))
        if len(target) < self.rank or any(not 0 <= e < s for e, s in zip(extra, self.stride, strict=True)):
            raise ShapeError(
                f"{type(self).__name__}: output_size must be {least} or less than a stride more, got"
                f" {target}."
            )
        return extra

    def extra_repr(self) -> str:
        """Return the settings that differ from their defaults."""
        return ", ".join(self._settings("padding", "dilation", "output_padding"))


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over one axis: ``([batch,] in_channels, length)`` to a longer one.

    >>> import tensorbus as tb
    >>> tb.nn.ConvTranspose1d(2, 4, 3, stride=2)(tb.ones((1, 2, 8))).shape
    (1, 4, 17)
    """

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over two axes; ``weight`` is ``(in_channels, out_channels / groups, *kernel)``.

    >>> import tensorbus as tb
    >>> tb.nn.ConvTranspose2d(1, 3, 2, stride=2)(tb.ones((1, 1, 4, 4))).shape
    (1, 3, 8, 8)
    """

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over three axes."""

    rank = 3
