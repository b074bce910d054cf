"""Activations as modules, so that they can stand in a ``Sequential``."""

from __future__ import annotations

from ...errors import ArgumentError, ShapeError
from ...tensor.tensor import Tensor
from .. import functional
from ..functional.activation import also_in
from ..module import Module


class ReLU(Module):
    """``max(x, 0)``. With ``inplace`` the input then holds the result too.

    >>> import tensorbus as tb
    >>> tb.nn.ReLU()(tb.asarray([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.relu(input), self.inplace)

    def extra_repr(self) -> str:
        """Return the setting where it is on."""
        return "inplace=True" if self.inplace else ""


class SiLU(Module):
    """``x * sigmoid(x)`` (Hendrycks and Gimpel 2016; Elfwing, Uchibe, Doya 2017)."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return also_in(input, functional.silu(input), self.inplace)

    def extra_repr(self) -> str:
        """Return the setting where it is on."""
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """The Gaussian error linear unit: exact, or by its approximation with ``approximate="tanh"``."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ArgumentError(f"GELU: approximate must be 'none' or 'tanh', got {approximate!r}.")
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.gelu(input, self.approximate)
        return out

    def extra_repr(self) -> str:
        """Return the setting."""
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """The logistic function."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return functional.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        return functional.tanh(input)


class Softmin(Module):
    """``softmax(-x)`` along ``dim``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the shares, which add up to 1 along ``dim``."""
        return functional.softmin(input, self.dim)

    def extra_repr(self) -> str:
        """Return the axis."""
        return f"dim={self.dim}"


class Softmax2d(Module):
    """``softmax`` over the channels of images ``([batch,] channels, height, width)``."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the shares of the channels. Raises ``ShapeError`` for another rank."""
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: 3 or 4 dimensions are needed, got shape {input.shape}.")
        return functional.softmax(input, -3)


class Softmax(Module):
    """``exp(x)`` divided by its sum along ``dim``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the shares, which add up to 1 along ``dim``."""
        return functional.softmax(input, self.dim)

    def extra_repr(self) -> str:
        """Return the axis."""
        return f"dim={self.dim}"
