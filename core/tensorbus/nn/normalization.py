"""Normalization layers: over a batch, and over the last axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from ..autograd import no_grad
from ..device import Device
from ..dtypes import DType, default_int
from ..errors import ShapeError
from ..ops.creation import ones, zeros
from ..tensor import Tensor
from . import functional, init
from .linear import positive
from .module import Module
from .parameter import Parameter


class _BatchNorm(Module):
    """What the layers share; ``ranks`` are the numbers of dimensions that the input may have."""

    ranks: ClassVar[tuple[int, ...]]

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Device | str | None = None,
        dtype: DType | str | None = None, *, bias: bool = True,
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

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` normalized. Raises ``ShapeError`` for a wrong rank or number of channels."""
        if x.ndim not in self.ranks:
            wanted = " or ".join(map(str, self.ranks))
            raise ShapeError(
                f"{type(self).__name__}: an input of {wanted} dimensions is needed, got shape {x.shape}."
            )
        by_batch = self.training or self.running_mean is None
        momentum = self.momentum if self.momentum is not None else 0.0
        if self.training and self.track_running_stats:
            with no_grad():
                self.num_batches_tracked += 1
            if self.momentum is None:
                momentum = 1 / float(self.num_batches_tracked)
        tracked = self.track_running_stats and (self.training or not by_batch)
        return functional.batch_norm(
            x, self.running_mean if tracked else None, self.running_var if tracked else None,
            self.weight, self.bias, by_batch, momentum, self.eps,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine},"
            f" bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


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


class LayerNorm(Module):
    """Normalize over the last axes, whose shape is ``normalized_shape`` (Ba, Kiros, Hinton 2016).

    >>> import tensorbus as tb
    >>> tb.nn.LayerNorm(4)(tb.ones((2, 4))).tolist()[0]
    [0.0, 0.0, 0.0, 0.0]
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        for length in shape or (0,):
            positive("LayerNorm", normalized_shape=length)
        self.normalized_shape = shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        both = elementwise_affine and bias
        self.register_parameter(
            "weight", Parameter(ones(shape, device=device, dtype=dtype)) if elementwise_affine else None
        )
        self.register_parameter("bias", Parameter(zeros(shape, device=device, dtype=dtype)) if both else None)

    def reset_parameters(self) -> None:
        """Make the weight ones and the bias zeros."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` normalized. Raises ``ShapeError`` where its last axes are not ``normalized_shape``."""
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine},"
            f" bias={self.bias is not None}"
        )
