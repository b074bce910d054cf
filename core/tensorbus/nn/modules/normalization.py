"""Layers that normalize each example by itself."""

from __future__ import annotations

from collections.abc import Sequence

from ...devices.device import Device
from ...dtypes.definition import DType
from ...errors import ArgumentError
from ...ops.creation.creation import ones, zeros
from ...tensor.tensor import Tensor
from .. import functional, init
from ..module import Module
from ..parameter import Parameter
from .linear import positive


def _reset(module: Module) -> None:
    if module.weight is not None:
        init.ones_(module.weight)
    if getattr(module, "bias", None) is not None:
        init.zeros_(module.bias)


def _shape(layer: str, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    for length in shape or (0,):
        positive(layer, normalized_shape=length)
    return shape


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
        shape = self.normalized_shape = _shape("LayerNorm", normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        both = elementwise_affine and bias
        self.register_parameter(
            "weight", Parameter(ones(shape, device=device, dtype=dtype)) if elementwise_affine else None
        )
        self.register_parameter("bias", Parameter(zeros(shape, device=device, dtype=dtype)) if both else None)

    def reset_parameters(self) -> None:
        """Make the weight ones and the bias zeros."""
        _reset(self)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` normalized. Raises ``ShapeError`` unless it ends in ``normalized_shape``."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine},"
            f" bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root of the mean square over the last axes (Zhang and Sennrich 2019).

    >>> import tensorbus as tb
    >>> tb.nn.RMSNorm(2, eps=0.0)(tb.asarray([[2.0, -2.0]])).tolist()
    [[1.0, -1.0]]
    """

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, device: Device | str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = _shape("RMSNorm", normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        weight = Parameter(ones(self.normalized_shape, device=device, dtype=dtype))
        self.register_parameter("weight", weight if elementwise_affine else None)

    def reset_parameters(self) -> None:
        """Make the weight ones."""
        _reset(self)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` normalized. Raises ``ShapeError`` unless it ends in ``normalized_shape``."""
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalize groups of channels of ``(batch, channels, *space)`` (Wu and He 2018).

    >>> import tensorbus as tb
    >>> tb.nn.GroupNorm(2, 4)(tb.ones((1, 4, 3))).shape
    (1, 4, 3)
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: Device | str | None = None, dtype: DType | str | None = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        positive("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise ArgumentError(
                f"GroupNorm: num_groups must divide num_channels, got {num_groups} and {num_channels}."
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        shape = (num_channels,)
        self.register_parameter(
            "weight", Parameter(ones(shape, device=device, dtype=dtype)) if affine else None
        )
        self.register_parameter(
            "bias", Parameter(zeros(shape, device=device, dtype=dtype)) if affine and bias else None
        )

    def reset_parameters(self) -> None:
        """Make the weight ones and the bias zeros."""
        _reset(self)

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` normalized. Raises ``ShapeError`` for a wrong number of channels."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the settings."""
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine},"
            f" bias={self.bias is not None}"
        )


class LocalResponseNorm(Module):
    """Damp each channel by its neighbours (Krizhevsky, Sutskever, Hinton 2012)."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        positive("LocalResponseNorm", size=size)
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input`` damped. Raises ``ShapeError`` for fewer than 3 dimensions."""
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
