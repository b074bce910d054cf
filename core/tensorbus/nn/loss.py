"""Losses as modules."""

from __future__ import annotations

from ..errors import ArgumentError
from ..ops.loss import Reduction
from ..tensor import Tensor
from . import functional
from .module import Module


def _check(reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ArgumentError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")


class CrossEntropyLoss(Module):
    """The cross entropy of logits ``(batch, classes, *space)`` with class indices or probabilities.

    ``weight`` holds a factor for each class and is a buffer; targets equal to ``ignore_index`` count for
    nothing.

    >>> import tensorbus as tb
    >>> round(tb.nn.CrossEntropyLoss()(tb.zeros((3, 10)), tb.asarray([0, 4, 9])).item(), 4)
    2.3026
    """

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        _check(reduction)
        if not 0 <= label_smoothing <= 1:
            raise ArgumentError(f"CrossEntropyLoss: label_smoothing lies in [0, 1], got {label_smoothing!r}.")
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss. Raises ``ShapeError`` where the target does not fit the logits."""
        return functional.cross_entropy(
            x, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip


class MSELoss(Module):
    """The mean squared difference."""

    def __init__(self, reduction: Reduction = "mean") -> None:
        super().__init__()
        _check(reduction)
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.mse_loss(x, target, reduction=self.reduction)
