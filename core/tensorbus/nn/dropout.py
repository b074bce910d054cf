"""Dropout."""

from __future__ import annotations

from ..errors import ArgumentError
from ..tensor import Tensor
from . import functional
from .module import Module


class Dropout(Module):
    """Zero each element with probability ``p`` in training, and scale the others by ``1 / (1 - p)``.

    The mask comes from the counter-based generator: after ``tb.manual_seed`` it is the same on every device.
    Raises ``ArgumentError`` unless ``0 <= p <= 1``.

    >>> import tensorbus as tb
    >>> tb.nn.Dropout(0.5).eval()(tb.ones((2,))).tolist()
    [1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"Dropout: a probability lies in [0, 1], got {p!r}.")
        self.p = p
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x``, thinned out in training."""
        out = functional.dropout(x, self.p, self.training)
        if self.inplace:
            x.rebind(out)
        return out

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"p={self.p}, inplace={self.inplace}"
