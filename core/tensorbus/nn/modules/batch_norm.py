"""Layers that normalize channels over a batch or an instance, and keep running statistics."""

from __future__ import annotations

from typing import Any, ClassVar

from ...autograd.engine import no_grad
from ...devices.device import Device
from ...dtypes.definition import DType, default_int
from ...errors import ShapeError
from ...ops.creation.creation import ones, zeros
from ...ops.elementwise.transcendental import reciprocal
from ...ops.elementwise.where_cast import cast
from ...ops.movement.movement import reshape
from ...ops.nn.batch_norm import counted_batch_norm
from ...tensor.tensor import Tensor
from .. import functional, init
from ..module import Module
from ..parameter import Parameter
from .linear import positive


class _Norm(Module):
    """Base of the layers; ``ranks`` are the numbers of dimensions that the input may have."""

    ranks: ClassVar[tuple[int, ...]]

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool,
        track_running_stats: bool, device: Device | str | None, dtype: DType | str | None, bias: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        positive(type(self).__name__, num_features=num_features)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        shape, tracked = (num_features,), track_running_stats
        weight = Parameter(ones(shape, device=device, dtype=dtype)) if affine else None
        shift = Parameter(zeros(shape, device=device, dtype=dtype)) if affine and bias else None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", shift)
        self.register_buffer("running_mean", zeros(shape, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", ones(shape, device=device, dtype=dtype) if tracked else None)
        batches = zeros((), device=device, dtype=default_int) if tracked else None
        self.register_buffer("num_batches_tracked", batches)

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Forget the running statistics, the weight and the bias."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def check(self, x: Tensor) -> None:
        """Raise ``ShapeError`` for an input of a wrong rank."""
        if x.ndim not in self.ranks:
            ranks = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__}: an input of {ranks} dimensions is needed, got shape {x.shape}."
            )

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine},"
            f" bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_Norm):
    """Normalization over the batch."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Device | str | None = None,
        dtype: DType | str | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` normalized. Raises ``ShapeError`` for a wrong rank or number of channels."""
        self.check(input)
        running, variance, momentum = self.running_mean, self.running_var, self.momentum
        training, tracked = self.training, self.track_running_stats
        by_batch = training or running is None
        if training and tracked:
            batches = self.num_batches_tracked
            if type(momentum) is float and not (running is None or variance is None):
                return counted_batch_norm(
                    input, running, variance, batches, self.weight, self.bias, momentum, self.eps
                )
            with no_grad():
                batches += 1
        share: Any = 0.0 if momentum is None else momentum
        if training and tracked and momentum is None:
            share = reciprocal(cast(batches, running.dtype))
        tracked = tracked and (training or not by_batch)
        return functional.batch_norm(
            input, running if tracked else None, variance if tracked else None, self.weight, self.bias,
            by_batch, share, self.eps,
        )  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Normalize each channel of ``(batch, channels)`` or ``(batch, channels, length)`` over all else.

    Running statistics are buffers; ``momentum=None`` makes them plain averages over all batches.

    >>> import tensorbus as tb
    >>> tb.nn.BatchNorm1d(1)(tb.asarray([[-1.0], [1.0]])).shape
    (2, 1)
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalize each channel of ``(batch, channels, height, width)`` over all else (Ioffe and Szegedy 2015).

    In training by the batch's own mean and variance, and the running ones follow by ``momentum``; in
    evaluation by the running ones.

    >>> import tensorbus as tb
    >>> norm = tb.nn.BatchNorm2d(3)
    >>> norm(tb.ones((2, 3, 4, 4))).shape, norm.num_batches_tracked.item()
    ((2, 3, 4, 4), 1)
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalize each channel of ``(batch, channels, depth, height, width)`` over all else."""

    ranks = (5,)


class _InstanceNorm(_Norm):
    """Normalization over the space of each example."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Device | str | None = None,
        dtype: DType | str | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` normalized. Raises ``ShapeError`` for a wrong rank or number of channels."""
        self.check(input)
        alone = input.ndim == self.ranks[0]
        whole = reshape(input, (1, *input.shape)) if alone else input
        momentum = 0.0 if self.momentum is None else self.momentum
        by_example = self.training or not self.track_running_stats
        out = functional.instance_norm(
            whole, self.running_mean, self.running_var, self.weight, self.bias, by_example, momentum, self.eps
        )
        return reshape(out, input.shape) if alone else out


class InstanceNorm1d(_InstanceNorm):
    """Normalize each channel of each ``([batch,] channels, length)`` (Ulyanov, Vedaldi, Lempitsky 2016).

    No parameters unless ``affine``, no running statistics unless ``track_running_stats``.
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalize each channel of each ``([batch,] channels, height, width)``.

    >>> import tensorbus as tb
    >>> tb.nn.InstanceNorm2d(1)(tb.asarray([[[[-1.0, 1.0]]]])).shape
    (1, 1, 1, 2)
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalize each channel of each ``([batch,] channels, depth, height, width)``."""

    ranks = (4, 5)
