"""Losses between classes and between numbers, as modules."""

from __future__ import annotations

from typing import Any, cast

from ....errors import ArgumentError
from ....ops.nn.loss import Reduction
from ....tensor.tensor import Tensor
from ... import functional
from ...module import Module


class Loss(Module):
    """Base of losses: the reduction. Raises ``ArgumentError`` for an unknown one."""

    also: tuple[str, ...] = ()

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in ("mean", "sum", "none", *self.also):
            raise ArgumentError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")
        self.reduction = cast("Reduction", reduction)


class WeightedLoss(Loss):
    """A loss with a buffer of weights."""

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(WeightedLoss):
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
        super().__init__(weight, reduction=reduction)
        if not 0 <= label_smoothing <= 1:
            raise ArgumentError(f"CrossEntropyLoss: label_smoothing lies in [0, 1], got {label_smoothing!r}.")
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss. Raises ``ShapeError`` where the target does not fit the logits."""
        return functional.cross_entropy(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip


class NLLLoss(WeightedLoss):
    """The negative log likelihood of class indices under log probabilities: see ``CrossEntropyLoss``."""

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class BCELoss(WeightedLoss):
    """The cross entropy of targets in [0, 1] with probabilities."""

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(WeightedLoss):
    """The cross entropy of targets in [0, 1] with the sigmoid of logits.

    >>> import tensorbus as tb
    >>> round(tb.nn.BCEWithLogitsLoss()(tb.zeros((2,)), tb.ones((2,))).item(), 4)
    0.6931
    """

    def __init__(
        self, weight: Tensor | None = None, reduction: Reduction = "mean", pos_weight: Tensor | None = None
    ) -> None:
        super().__init__(weight, reduction=reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class SoftMarginLoss(Loss):
    """``log(1 + exp(-target * x))`` for targets of 1 and -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """The binary cross entropy with logits, averaged over the classes."""

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__(weight, reduction=reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class MultiMarginLoss(WeightedLoss):
    """The hinge loss between the score of a class and all others."""

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(weight, reduction=reduction)
        if p not in (1, 2):
            raise ArgumentError(f"MultiMarginLoss: p must be 1 or 2, got {p!r}.")
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, reduction=self.reduction
        )


class MultiLabelMarginLoss(Loss):
    """The hinge loss between the scores of all classes that are named and those of all others."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.multilabel_margin_loss(input, target, reduction=self.reduction)


class CTCLoss(Loss):
    """The negative log likelihood of labels whose places in time nobody knows: see ``ctc_loss``."""

    def __init__(self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        """Return the loss."""
        return functional.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class MSELoss(Loss):
    """The mean squared difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.mse_loss(input, target, reduction=self.reduction)


class L1Loss(Loss):
    """The mean absolute difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.l1_loss(input, target, reduction=self.reduction)


class HuberLoss(Loss):
    """Half the squared difference up to ``delta``, and a straight line beyond (Huber 1964)."""

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class SmoothL1Loss(Loss):
    """The absolute difference less ``beta / 2``, and a parabola below ``beta`` (Girshick 2015)."""

    def __init__(self, reduction: Reduction = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class KLDivLoss(Loss):
    """The divergence of a target from log probabilities; ``reduction`` may be ``"batchmean"``."""

    also = ("batchmean",)

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(Loss):
    """The negative log likelihood of counts under Poisson distributions."""

    def __init__(
        self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return functional.poisson_nll_loss(
            log_input, target, self.log_input, self.full, self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(Loss):
    """The negative log likelihood of numbers under normal distributions."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """Return the loss of means ``input`` and variances ``var``."""
        return functional.gaussian_nll_loss(input, target, var, self.full, self.eps, reduction=self.reduction)
