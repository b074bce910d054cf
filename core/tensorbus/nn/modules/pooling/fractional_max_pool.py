"""Pooling layers whose windows are drawn anew at each call."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from ....ops.nn.convolution import Lengths, spread
from ....tensor.tensor import Tensor
from ... import functional
from ...functional.fractional_max_pool import Ratio, sizes
from ...module import Module

_RUN: Final = {2: functional.fractional_max_pool2d, 3: functional.fractional_max_pool3d}


class _FractionalMaxPool(Module):
    rank: ClassVar[int]

    def __init__(
        self, kernel_size: Lengths, output_size: Lengths | None = None, output_ratio: Ratio | None = None,
        return_indices: bool = False, _random_samples: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        self.kernel_size = spread(name, "kernel_size", kernel_size, self.rank, 1)
        self.output_size, self.output_ratio = sizes(name, self.rank, output_size, output_ratio)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Any:
        """Return the maxima, and where they are if asked. Raises ``ShapeError`` where windows do not fit."""
        return _RUN[self.rank](
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices,
            self._random_samples,
        )  # fmt: skip


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest element of windows of ``([batch,] channels, height, width)`` at places that are drawn.

    Either ``output_size`` or ``output_ratio``, a share between 0 and 1, says how many (Graham 2014).
    ``_random_samples``, of shape ``(batch, channels, 2)``, keep the places the same.

    >>> import tensorbus as tb
    >>> tb.nn.FractionalMaxPool2d(3, output_ratio=0.5)(tb.ones((1, 2, 9, 8))).shape
    (1, 2, 4, 4)
    """

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest element of windows of ``([batch,] channels, depth, height, width)``: see the 2-d one."""

    rank = 3
