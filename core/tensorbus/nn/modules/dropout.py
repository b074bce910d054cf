"""Dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import ArgumentError
from ...tensor.tensor import Tensor
from .. import functional
from ..module import Module


class _Dropout(Module):
    """Base of the layers; ``run`` is the function that drops."""

    run: Callable[..., Any]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"{type(self).__name__}: a probability lies in [0, 1], got {p!r}.")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Return ``input``, thinned out in training."""
        out: Tensor = type(self).run(input, self.p, self.training, self.inplace)
        return out

    def extra_repr(self) -> str:
        """Return the settings."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zero each element with probability ``p`` in training, and scale the others by ``1 / (1 - p)``.

    The mask comes from the counter-based generator: after ``tb.manual_seed`` it is the same on every device.
    Raises ``ArgumentError`` unless ``0 <= p <= 1``.

    >>> import tensorbus as tb
    >>> tb.nn.Dropout(0.5).eval()(tb.ones((2,))).tolist()
    [1.0, 1.0]
    """

    run = staticmethod(functional.dropout)


class Dropout1d(_Dropout):
    """Zero whole channels of ``([batch,] channels, length)``."""

    run = staticmethod(functional.dropout1d)


class Dropout2d(_Dropout):
    """Zero whole channels of ``(batch, channels, height, width)`` (Tompson et al. 2015)."""

    run = staticmethod(functional.dropout2d)


class Dropout3d(_Dropout):
    """Zero whole channels of ``([batch,] channels, depth, height, width)``."""

    run = staticmethod(functional.dropout3d)


class AlphaDropout(_Dropout):
    """Set elements to SELU's negative limit, so that mean and variance stay 0 and 1 (Klambauer 2017)."""

    run = staticmethod(functional.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """Set whole channels to SELU's negative limit: see ``AlphaDropout``."""

    run = staticmethod(functional.feature_alpha_dropout)
