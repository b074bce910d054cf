"""Layers that learn the size of their input from the first one: see ``lazy``.

Each is called as its plain layer is, without that size, and becomes one of those at its first call.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ...devices.device import Device
from ...dtypes.definition import DType
from ...errors import ShapeError
from ...ops.nn.convolution import Lengths
from ...tensor.tensor import Tensor
from ..lazy_module import become, wait
from .batch_norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .convolution.conv import Conv1d, Conv2d, Conv3d
from .convolution.conv_transpose import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear


def _later(self: Any) -> None:
    """Do nothing: there are no values yet."""


class LazyLinear(Linear):
    """A ``Linear`` whose ``in_features`` are the last axis of the first input.

    >>> import tensorbus as tb
    >>> layer = tb.nn.LazyLinear(2)
    >>> layer(tb.ones((5, 3))).shape
    (5, 2)
    >>> layer
    Linear(in_features=3, out_features=2, bias=True)
    """

    reset_parameters = _later

    def __init__(
        self, out_features: int, bias: bool = True, device: Device | str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(1, out_features, bias, device, dtype)
        wait(self, "in_features")

    def forward(self, input: Tensor) -> Tensor:
        """Become a ``Linear`` and return its result."""
        if not input.shape:
            raise ShapeError("LazyLinear: an input of at least 1 dimension is needed, got a scalar.")
        make = partial(Linear, input.shape[-1], self.out_features, self.bias is not None)
        become(self, Linear, "in_features", input.shape[-1], make)
        return Linear.forward(self, input)


def _convolution(
    self: Any, out_channels: int, kernel_size: Lengths, stride: Lengths = 1, padding: Lengths | str = 0,
    dilation: Lengths = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
    device: Device | str | None = None, dtype: DType | str | None = None,
) -> None:  # fmt: skip
    self.plain.__init__(
        self, max(groups, 1), out_channels, kernel_size, stride, padding, dilation, groups, bias,
        padding_mode, device, dtype,
    )  # fmt: skip
    wait(self, "in_channels")


def _transposed(
    self: Any, out_channels: int, kernel_size: Lengths, stride: Lengths = 1, padding: Lengths = 0,
    output_padding: Lengths = 0, groups: int = 1, bias: bool = True, dilation: Lengths = 1,
    padding_mode: str = "zeros", device: Device | str | None = None, dtype: DType | str | None = None,
) -> None:  # fmt: skip
    self.plain.__init__(
        self, max(groups, 1), out_channels, kernel_size, stride, padding, output_padding, groups, bias,
        dilation, padding_mode, device, dtype,
    )  # fmt: skip
    wait(self, "in_channels")


def _convolve(self: Any, input: Tensor, *rest: Any, **named: Any) -> Tensor:
    """Become the plain layer and return its result. Raises ``ShapeError`` for an input of a wrong rank."""
    rank, kind = self.rank, self.plain
    if input.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{type(self).__name__}: an input of {rank + 1} or {rank + 2} dimensions is needed, got shape"
            f" {input.shape}."
        )
    settings = {name: getattr(self, name) for name in _CONVOLUTION if hasattr(self, name)}
    channels = input.shape[-1 - rank]
    make = partial(kind, channels, self.out_channels, bias=self.bias is not None, **settings)
    become(self, kind, "in_channels", channels, make)
    out: Tensor = self.forward(input, *rest, **named)
    return out


_CONVOLUTION = (
    "kernel_size", "stride", "padding", "output_padding", "dilation", "groups", "padding_mode",
)  # fmt: skip


class LazyConv1d(Conv1d):
    """A ``Conv1d`` whose ``in_channels`` are those of the first input."""

    plain, __init__, reset_parameters, forward = Conv1d, _convolution, _later, _convolve


class LazyConv2d(Conv2d):
    """A ``Conv2d`` whose ``in_channels`` are those of the first input.

    >>> import tensorbus as tb
    >>> layer = tb.nn.LazyConv2d(4, kernel_size=3)
    >>> layer(tb.ones((2, 5, 8, 8))).shape, layer.weight.shape
    ((2, 4, 6, 6), (4, 5, 3, 3))
    """

    plain, __init__, reset_parameters, forward = Conv2d, _convolution, _later, _convolve


class LazyConv3d(Conv3d):
    """A ``Conv3d`` whose ``in_channels`` are those of the first input."""

    plain, __init__, reset_parameters, forward = Conv3d, _convolution, _later, _convolve


class LazyConvTranspose1d(ConvTranspose1d):
    """A ``ConvTranspose1d`` whose ``in_channels`` are those of the first input."""

    plain, __init__, reset_parameters, forward = ConvTranspose1d, _transposed, _later, _convolve


class LazyConvTranspose2d(ConvTranspose2d):
    """A ``ConvTranspose2d`` whose ``in_channels`` are those of the first input."""

    plain, __init__, reset_parameters, forward = ConvTranspose2d, _transposed, _later, _convolve


class LazyConvTranspose3d(ConvTranspose3d):
    """A ``ConvTranspose3d`` whose ``in_channels`` are those of the first input."""

    plain, __init__, reset_parameters, forward = ConvTranspose3d, _transposed, _later, _convolve


def _normalization(
    self: Any, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
    track_running_stats: bool = True, device: Device | str | None = None, dtype: DType | str | None = None,
    *, bias: bool = True,
) -> None:  # fmt: skip
    self.plain.__init__(self, 1, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
    wait(self, "num_features")


def _normalize(self: Any, input: Tensor) -> Tensor:
    """Become the plain layer and return its result. Raises ``ShapeError`` for an input of a wrong rank."""
    self.check(input)
    kind, settings = self.plain, {name: getattr(self, name) for name in _NORMALIZATION}
    alone = kind in _OF_EXAMPLES and input.ndim == kind.ranks[0]
    count = input.shape[0 if alone else 1]
    become(self, kind, "num_features", count, partial(kind, count, bias=self.bias is not None, **settings))
    out: Tensor = self.forward(input)
    return out


_NORMALIZATION = ("eps", "momentum", "affine", "track_running_stats")
_OF_EXAMPLES = (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)


class LazyBatchNorm1d(BatchNorm1d):
    """A ``BatchNorm1d`` whose ``num_features`` are the channels of the first input."""

    plain, __init__, reset_parameters, forward = BatchNorm1d, _normalization, _later, _normalize


class LazyBatchNorm2d(BatchNorm2d):
    """A ``BatchNorm2d`` whose ``num_features`` are the channels of the first input.

    >>> import tensorbus as tb
    >>> norm = tb.nn.LazyBatchNorm2d()
    >>> norm(tb.ones((2, 3, 4, 4))).shape, norm.num_features
    ((2, 3, 4, 4), 3)
    """

    plain, __init__, reset_parameters, forward = BatchNorm2d, _normalization, _later, _normalize


class LazyBatchNorm3d(BatchNorm3d):
    """A ``BatchNorm3d`` whose ``num_features`` are the channels of the first input."""

    plain, __init__, reset_parameters, forward = BatchNorm3d, _normalization, _later, _normalize


class LazyInstanceNorm1d(InstanceNorm1d):
    """An ``InstanceNorm1d`` whose ``num_features`` are the channels of the first input."""

    plain, __init__, reset_parameters, forward = InstanceNorm1d, _normalization, _later, _normalize


class LazyInstanceNorm2d(InstanceNorm2d):
    """An ``InstanceNorm2d`` whose ``num_features`` are the channels of the first input."""

    plain, __init__, reset_parameters, forward = InstanceNorm2d, _normalization, _later, _normalize


class LazyInstanceNorm3d(InstanceNorm3d):
    """An ``InstanceNorm3d`` whose ``num_features`` are the channels of the first input."""

    plain, __init__, reset_parameters, forward = InstanceNorm3d, _normalization, _later, _normalize
