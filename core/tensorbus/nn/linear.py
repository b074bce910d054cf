"""The layers that multiply by a matrix, or by nothing."""

from __future__ import annotations

from typing import Any

from ..device import Device
from ..dtypes import DType
from ..errors import ArgumentError
from ..ops.creation import empty
from ..tensor import Tensor
from . import functional, init
from .module import Module
from .parameter import Parameter


def positive(layer: str, **sizes: object) -> None:
    """Raise ``ArgumentError`` unless every size is an integer of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ArgumentError(f"{layer}: {name} must be an integer >= 1, got {size!r}.")


class Linear(Module):
    """``x @ weight.T + bias`` over the last axis: ``(*, in_features)`` to ``(*, out_features)``.

    ``weight`` is ``(out_features, in_features)``, ``bias`` ``(out_features,)``, both drawn evenly from within
    ``1 / sqrt(in_features)`` of zero.

    >>> import tensorbus as tb
    >>> tb.nn.Linear(3, 2)(tb.ones((5, 3))).shape
    (5, 2)
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Device | str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        positive("Linear", in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in_features), device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(empty((out_features,), device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.reset_affine(self.weight, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return the result. Raises ``ShapeError`` where the last axis is not ``in_features`` long."""
        return functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class Identity(Module):
    """Return the input; takes and ignores any arguments, so that it can stand in for any layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``."""
        return x


class Flatten(Module):
    """Join the axes from ``start_dim`` to ``end_dim``: ``(batch, *rest)`` to ``(batch, product)``."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with fewer axes."""
        out: Tensor = functional.flatten(x, self.start_dim, self.end_dim)
        return out

    def extra_repr(self) -> str:
        """Return the axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
