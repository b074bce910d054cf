"""Pooling layers over the last two axes."""

from __future__ import annotations

from ..ops.convolution import Lengths
from ..tensor import Tensor
from . import functional
from .module import Module


class MaxPool2d(Module):
    """The largest element of each window of ``(*, height, width)``; ``stride`` defaults to ``kernel_size``.

    >>> import tensorbus as tb
    >>> tb.nn.MaxPool2d(2)(tb.ones((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0, dilation: Lengths = 1
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation

    def forward(self, x: Tensor) -> Tensor:
        """Return the maxima. Raises ``ShapeError`` where no window fits."""
        return functional.max_pool2d(x, self.kernel_size, self.stride, self.padding, self.dilation)

    def extra_repr(self) -> str:
        """Return the settings; the last of them, as PyTorch prints it, is always False here."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding},"
            f" dilation={self.dilation},"
            f" ceil_mode=False"
        )


class AvgPool2d(Module):
    """The mean of each window of ``(*, height, width)``; padding counts as zeros."""

    def __init__(self, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        """Return the means. Raises ``ShapeError`` where no window fits."""
        return functional.avg_pool2d(x, self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
