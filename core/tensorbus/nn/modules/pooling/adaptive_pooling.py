"""Pooling layers to a given size."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from ....ops.nn.adaptive_pooling import OutputSize
from ....tensor.tensor import Tensor
from ... import functional
from ...module import Module

_AVERAGE: Final = {
    1: functional.adaptive_avg_pool1d, 2: functional.adaptive_avg_pool2d, 3: functional.adaptive_avg_pool3d,
}  # fmt: skip
_MAX: Final = {
    1: functional.adaptive_max_pool1d, 2: functional.adaptive_max_pool2d, 3: functional.adaptive_max_pool3d,
}  # fmt: skip


class _AdaptiveAvgPool(Module):
    rank: ClassVar[int]

    def __init__(self, output_size: OutputSize) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        """Return the means."""
        return _AVERAGE[self.rank](input, self.output_size)

    def extra_repr(self) -> str:
        """Return the size."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Means over ``(*, length)``, so that ``output_size`` are left."""

    rank = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Means over ``(*, height, width)``, so that ``output_size`` are left; None keeps a length.

    >>> import tensorbus as tb
    >>> tb.nn.AdaptiveAvgPool2d((1, None))(tb.ones((1, 3, 5, 7))).shape
    (1, 3, 1, 7)
    """

    rank = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Means over ``(*, depth, height, width)``, so that ``output_size`` are left."""

    rank = 3


class _AdaptiveMaxPool(Module):
    rank: ClassVar[int]

    def __init__(self, output_size: OutputSize, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        """Return the maxima, and where they are if asked."""
        return _MAX[self.rank](input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        """Return the size."""
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over ``(*, length)``, so that ``output_size`` are left."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over ``(*, height, width)``, so that ``output_size`` are left."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over ``(*, depth, height, width)``, so that ``output_size`` are left."""

    rank = 3
