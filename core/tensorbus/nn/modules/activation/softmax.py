"""Softmax and its kin as modules: shares that add up to 1."""

from __future__ import annotations

from ....errors import ShapeError
from ....tensor.tensor import Tensor
from ... import functional
from ...module import Module


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


class LogSoftmax(Module):
    """The logarithm of the softmax along ``dim``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Return the activation of ``input``."""
        out: Tensor = functional.log_softmax(input, self.dim)
        return out

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"dim={self.dim}"
