"""Pooling layers over windows of the last one, two or three axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from ....ops.nn.convolution import Lengths, spread
from ....tensor.tensor import Tensor
from ... import functional
from ...module import Module

_MAX: Final = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_UNPOOL: Final = {1: functional.max_unpool1d, 2: functional.max_unpool2d, 3: functional.max_unpool3d}
_LP: Final = {1: functional.lp_pool1d, 2: functional.lp_pool2d, 3: functional.lp_pool3d}


def _spread(
    name: str, rank: int, size: Lengths, stride: Lengths | None, padding: Lengths
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the sizes, steps and padding of windows along each axis."""
    sizes = spread(name, "kernel_size", size, rank, 1)
    steps = sizes if stride is None else spread(name, "stride", stride, rank, 1)
    return sizes, steps, spread(name, "padding", padding, rank)


class _MaxPool(Module):
    rank: ClassVar[int]

    def __init__(
        self, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
        dilation: Lengths = 1, return_indices: bool = False, ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        """Return the maxima, and where they are if asked. Raises ``ShapeError`` where no window fits."""
        return _MAX[self.rank](
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            self.return_indices,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding},"
            f" dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The largest element of each window of ``(*, length)``; ``stride`` defaults to ``kernel_size``."""

    rank = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window of ``(*, height, width)``; ``stride`` defaults to ``kernel_size``.

    >>> import tensorbus as tb
    >>> tb.nn.MaxPool2d(2)(tb.ones((1, 3, 8, 8))).shape
    (1, 3, 4, 4)
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """The largest element of each window of ``(*, depth, height, width)``."""

    rank = 3


class _AvgPool(Module):
    def __init__(
        self, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
        ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"

    def _settings(self) -> tuple[Lengths, Lengths, Lengths, bool, bool]:
        return self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad


class AvgPool1d(_AvgPool):
    """The mean of each window of ``(*, length)``; padding counts as zeros unless told otherwise."""

    def __init__(
        self, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
    ) -> None:  # fmt: skip
        size, stride, padding = _spread("AvgPool1d", 1, kernel_size, stride, padding)
        super().__init__(size, stride, padding, ceil_mode, count_include_pad)

    def forward(self, input: Tensor) -> Tensor:
        """Return the means. Raises ``ShapeError`` where no window fits."""
        return functional.avg_pool1d(input, *self._settings())


class AvgPool2d(_AvgPool):
    """The mean of each window of ``(*, height, width)``; padding counts as zeros unless told otherwise.

    >>> import tensorbus as tb
    >>> tb.nn.AvgPool2d(2)(tb.asarray([[[1.0, 2.0], [3.0, 6.0]]])).tolist()
    [[[3.0]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return the means. Raises ``ShapeError`` where no window fits."""
        return functional.avg_pool2d(input, *self._settings(), self.divisor_override)


class AvgPool3d(_AvgPool):
    """The mean of each window of ``(*, depth, height, width)``."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the means. Raises ``ShapeError`` where no window fits."""
        return functional.avg_pool3d(input, *self._settings(), self.divisor_override)


class _LPPool(Module):
    rank: ClassVar[int]

    def __init__(
        self, norm_type: float, kernel_size: Lengths, stride: Lengths | None = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        """Return the norms. Raises ``ShapeError`` where no window fits."""
        return _LP[self.rank](input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride},"
            f" ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The ``norm_type``-norm of each window of ``(*, length)``."""

    rank = 1


class LPPool2d(_LPPool):
    """The ``norm_type``-norm of each window of ``(*, height, width)``."""

    rank = 2


class LPPool3d(_LPPool):
    """The ``norm_type``-norm of each window of ``(*, depth, height, width)``."""

    rank = 3


class _MaxUnpool(Module):
    rank: ClassVar[int]

    def __init__(self, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0) -> None:
        super().__init__()
        settings = kernel_size, stride, padding
        self.kernel_size, self.stride, self.padding = _spread(type(self).__name__, self.rank, *settings)

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """Return the values where ``indices`` say, and 0 elsewhere."""
        return _UNPOOL[self.rank](input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """The reverse of ``MaxPool1d`` with its indices: what was not largest is 0."""

    rank = 1


class MaxUnpool2d(_MaxUnpool):
    """The reverse of ``MaxPool2d`` with its indices: what was not largest is 0."""

    rank = 2


class MaxUnpool3d(_MaxUnpool):
    """The reverse of ``MaxPool3d`` with its indices: what was not largest is 0."""

    rank = 3
