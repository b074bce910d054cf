"""A last layer with many classes and its cross entropy, in one module."""

from __future__ import annotations

from math import prod

from ....devices.device import Device
from ....dtypes.definition import DType
from ....errors import ArgumentError, ShapeError
from ....ops.movement.movement import reshape
from ....ops.nn.loss import Reduction
from ....tensor.tensor import Tensor
from ...functional.linear_cross_entropy import LinearCrossEntropyOptions, linear_cross_entropy
from ..linear import Linear, positive
from .loss import WeightedLoss


class LinearCrossEntropyLoss(WeightedLoss):
    """The cross entropy of a ``Linear`` layer's logits, which are never all in memory at once.

    ``linear`` maps ``(batch, in_features)`` to ``num_classes`` logits at each place of ``out_features``:
    targets are ``(batch, *out_features)``, or probabilities ``(batch, num_classes,
    *out_features)``. ``weight``, a buffer, has a factor for each class; ``options`` say how the batch is cut:
    see ``nn.functional.linear_cross_entropy``. Raises ``ArgumentError`` for settings out of range,
    ``ShapeError`` for a weight of another shape.

    >>> import tensorbus as tb
    >>> loss = tb.nn.LinearCrossEntropyLoss(5, 10, out_features=(4, 3))
    >>> loss(tb.ones((2, 5)), tb.zeros((2, 4, 3), dtype=tb.int64)).shape, loss.linear.weight.shape
    ((), (120, 5))
    """

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False,
        device: Device | str | None = None, dtype: DType | str | None = None, reduction: Reduction = "mean",
        weight: Tensor | None = None, ignore_index: int | None = None, label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:  # fmt: skip
        positive("LinearCrossEntropyLoss", in_features=in_features, num_classes=num_classes)
        positive("LinearCrossEntropyLoss", **{f"out_features[{k}]": n for k, n in enumerate(out_features)})
        if weight is not None and weight.shape != (num_classes,):
            raise ShapeError(
                f"LinearCrossEntropyLoss: a weight of shape ({num_classes},) is needed, got {weight.shape}."
            )
        if not 0 <= label_smoothing <= 1:
            raise ArgumentError(
                f"LinearCrossEntropyLoss: label_smoothing lies in [0, 1], got {label_smoothing!r}."
            )
        super().__init__(weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(in_features, prod(out_features, start=num_classes), bias, device, dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss. Raises ``ShapeError`` where the target does not fit the logits."""
        shape, bias = (self.num_classes, *self.out_features), self.linear.bias
        return linear_cross_entropy(
            input, reshape(self.linear.weight, (*shape, self.linear.in_features)), target,
            linear_bias=None if bias is None else reshape(bias, shape), weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing,
            options=self.options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Return the sizes and settings."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes},"
            f" out_features={self.out_features}, bias={self.linear.bias is not None},"
            f" reduction={self.reduction!r}, ignore_index={self.ignore_index},"
            f" label_smoothing={self.label_smoothing}, options={self.options}"
        )
