"""The layers that multiply by a matrix, or by nothing."""

from __future__ import annotations

from typing import Any

from ...devices.device import Device
from ...dtypes.definition import DType
from ...errors import ArgumentError
from ...ops.creation.creation import empty
from ...tensor.tensor import Tensor
from .. import functional, init
from ..module import Module
from ..parameter import Parameter


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

    def forward(self, input: Tensor) -> Tensor:
        """Return the result. Raises ``ShapeError`` where the last axis is not ``in_features`` long."""
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
        )


class Identity(Module):
    """Return the input; takes and ignores any arguments, so that it can stand in for any layer."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input``."""
        return input


class Bilinear(Module):
    """``x1 @ weight[k] @ x2 + bias[k]`` for each output ``k``, over the last axes.

    >>> import tensorbus as tb
    >>> tb.nn.Bilinear(3, 4, 2)(tb.ones((5, 3)), tb.ones((5, 4))).shape
    (5, 2)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
        device: Device | str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        positive("Bilinear", in1_features=in1_features, in2_features=in2_features, out_features=out_features)
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(empty((out_features,), device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, from within ``1 / sqrt(in1_features)`` of zero."""
        bound = self.in1_features**-0.5
        for parameter in self.parameters(recurse=False):
            init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return the result. Raises ``ShapeError`` where the inputs do not fit."""
        return functional.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features},"
            f" out_features={self.out_features}, bias={self.bias is not None}"
        )
