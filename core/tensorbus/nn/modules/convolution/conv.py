"""Convolution layers over one, two and three axes: one implementation, three names."""

from __future__ import annotations

from typing import Final

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError
from ....ops.nn.convolution import Lengths, spread
from ....tensor.tensor import Tensor
from ... import functional
from .windows import WindowLayer

_RUN: Final = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
PADDING_MODES: Final = ("zeros", "reflect", "replicate", "circular")


class _Conv(WindowLayer):
    """Base of the layers of convolutions."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Lengths, stride: Lengths = 1,
        padding: Lengths | str = 0, dilation: Lengths = 1, groups: int = 1, bias: bool = True,
        padding_mode: str = "zeros", device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        name, rank = type(self).__name__, self.rank
        self._set_windows(in_channels, out_channels, kernel_size, stride, dilation, groups)
        if padding_mode not in PADDING_MODES:
            raise ArgumentError(
                f"{name}: padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}."
            )
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f"{name}: padding must be numbers, 'same' or 'valid', got {padding!r}.")
        self.padding = padding if isinstance(padding, str) else spread(name, "padding", padding, rank)
        self.padding_mode = padding_mode
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ArgumentError(f"{name}: padding='same' needs stride 1, got {stride!r}.")
        self._set_parameters(out_channels, in_channels, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """Return the convolution. Raises ``ShapeError`` where the input does not fit."""
        if self.padding_mode != "zeros":
            padded = functional.pad(input, self._edges(), mode=self.padding_mode)
            return _RUN[self.rank](padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
        return _RUN[self.rank](
            input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def _edges(self) -> list[int]:
        """Return what is padded on both sides of each axis, the last one first."""
        edges: list[int] = []
        for k in reversed(range(self.rank)):
            if isinstance(self.padding, str):
                whole = self.dilation[k] * (self.kernel_size[k] - 1) if self.padding == "same" else 0
                edges += [whole // 2, whole - whole // 2]
            else:
                edges += [self.padding[k]] * 2
        return edges

    def extra_repr(self) -> str:
        """Return the settings that differ from their defaults."""
        parts = self._settings("padding", "dilation")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class Conv1d(_Conv):
    """Convolution over one axis: ``([batch,] in_channels, length)`` to ``([batch,] out_channels, places)``.

    >>> import tensorbus as tb
    >>> tb.nn.Conv1d(2, 4, 3)(tb.ones((1, 2, 8))).shape
    (1, 4, 6)
    """

    rank = 1


class Conv2d(_Conv):
    """Convolution over two axes: ``([batch,] in_channels, *space)`` to ``([batch,] out_channels, *places)``.

    ``weight`` is ``(out_channels, in_channels / groups, *kernel_size)``. ``kernel_size``, ``stride``,
    ``padding`` and ``dilation`` are integers or pairs; ``padding`` may be ``"same"`` or ``"valid"``.

    >>> import tensorbus as tb
    >>> tb.nn.Conv2d(1, 4, kernel_size=3, padding=1)(tb.ones((2, 1, 8, 8))).shape
    (2, 4, 8, 8)
    """

    rank = 2


class Conv3d(_Conv):
    """Convolution over three axes: ``([batch,] in_channels, depth, height, width)`` and so on.

    >>> import tensorbus as tb
    >>> tb.nn.Conv3d(1, 2, 2)(tb.ones((1, 1, 3, 3, 3))).shape
    (1, 2, 2, 2, 2)
    """

    rank = 3
