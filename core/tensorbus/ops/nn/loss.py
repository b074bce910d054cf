"""Losses between classes: cross entropy in its forms, and margins between scores.

Names, arguments and values are PyTorch's. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ...dtypes.definition import DType, int64
from ...errors import ArgumentError, DtypeError, ShapeError
from ..call_errors import with_form
from ..creation.creation import iota
from ..elementwise.activation import softplus
from ..elementwise.arithmetic import maximum
from ..elementwise.comparison import logical_not
from ..elementwise.family import broadcast_shapes
from ..elementwise.special import bernoulli_loss
from ..elementwise.where_cast import cast, where
from ..fused_function import fuse_in_eager
from ..indexing.gather_scatter import gather
from ..movement.movement import moveaxis, reshape
from ..reduction.reduction import any, mean, sum
from ..reduction.scan import cumulative_sum
from ..reduction.softmax import log_softmax

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

Reduction = Literal["mean", "sum", "none"]


def reduced(name: str, losses: Tensor, reduction: str, total: Any = None) -> Tensor:
    """Return the losses, their sum or their mean; ``total`` is what the mean divides by, else the count.

    Raises ``ArgumentError`` for any other ``reduction``.
    """
    if reduction == "none":
        return losses
    if reduction == "sum":
        return sum(losses)
    if reduction != "mean":
        raise ArgumentError(f"{name}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")
    return mean(losses) if total is None else sum(losses) / total


@with_form
@fuse_in_eager
def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100,
    reduction: Reduction = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return the cross entropy between ``target`` and the softmax of the logits ``input``.

    ``input`` is ``(batch, classes, *space)`` or ``(classes,)``; ``target`` holds class indices of the shape
    without the classes, or probabilities of the shape of ``input``. ``weight`` has one factor a class. The
    mean is over the weights of the targets that are not ``ignore_index``. Raises ``ShapeError`` where shapes
    do not fit, ``IndexingError`` for a class that is not there.

    >>> import tensorbus as tb
    >>> round(tb.cross_entropy(tb.asarray([[0.0, 0.0]]), tb.asarray([1])).item(), 4)
    0.6931
    """
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"cross_entropy: label_smoothing lies in [0, 1], got {label_smoothing!r}.")
    axis = _class_axis("cross_entropy", input)
    classes = input.shape[axis]
    check_weight("cross_entropy", weight, classes)
    logs = moveaxis(log_softmax(input, axis=axis), axis, -1)
    if target.dtype.is_floating:
        if target.shape != input.shape:
            raise ShapeError(
                f"cross_entropy: a target of {target.dtype} holds a probability for each class, in the shape"
                f" of the logits, {input.shape}, got {target.shape}; classes are integers: target.long()."
            )
        shares = moveaxis(target, axis, -1) * (1 - label_smoothing) + label_smoothing / classes
        losses = -sum(shares * logs if weight is None else shares * logs * weight, axis=-1)
        return reduced("cross_entropy", losses, reduction, losses.size)
    losses, factors, counted = _chosen_losses("cross_entropy", logs, target, weight, ignore_index)
    if label_smoothing:
        every = -sum(logs if weight is None else logs * weight, axis=-1)
        losses = losses * (1 - label_smoothing) + where(counted, every, 0.0) * (label_smoothing / classes)
    return reduced("cross_entropy", losses, reduction, sum(factors))


@with_form
@fuse_in_eager
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """Return the negative log likelihood of class indices ``target`` under log probabilities ``input``.

    Shapes, ``weight``, ``ignore_index`` and errors are those of ``cross_entropy``.

    >>> import tensorbus as tb
    >>> tb.nll_loss(tb.asarray([[-1.0, -2.0]]), tb.asarray([1])).item()
    2.0
    """
    axis = _class_axis("nll_loss", input)
    check_weight("nll_loss", weight, input.shape[axis])
    logs = moveaxis(input, axis, -1)
    losses, factors, _ = _chosen_losses("nll_loss", logs, target, weight, ignore_index)
    return reduced("nll_loss", losses, reduction, sum(factors))


def _class_axis(name: str, x: Tensor) -> int:
    if not x.shape:
        raise ShapeError(f"{name}: scores of shape (classes,) or (batch, classes, *space) are needed.")
    return 1 if len(x.shape) > 1 else 0


def check_weight(name: str, weight: Tensor | None, classes: int) -> None:
    """Raise ``ShapeError`` unless ``weight`` has a factor for each class."""
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"{name}: a weight of shape ({classes},) is needed, got {weight.shape}.")


def _chosen_losses(
    name: str, logs: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weighted losses of the classes named, the weights, and which targets count."""
    if not target.dtype.is_integer:
        also = " or probabilities" if name == "cross_entropy" else ""
        raise DtypeError(f"{name}: the target holds class indices{also}, got {target.dtype}.")
    if target.shape != logs.shape[:-1]:
        raise ShapeError(
            f"{name}: the classes' scores need a target of shape {logs.shape[:-1]}, got {target.shape}."
        )
    factors, counted, index = class_factors(target, weight, ignore_index, logs.dtype)
    chosen = where(counted, _chosen(logs, index), 0.0)  # an ignored row may hold infinities
    return -chosen * factors, factors, counted


def class_factors(
    target: Tensor, weight: Tensor | None, ignore_index: int, dtype: DType
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the weights of class indices, which of them count, and the indices with 0 where they do not."""
    target = cast(target, int64)
    counted = target != ignore_index
    index = where(counted, target, 0)
    factors = cast(counted, dtype) if weight is None else where(counted, gather(weight, index), 0.0)
    return factors, counted, index


def _chosen(logs: Tensor, index: Tensor) -> Tensor:
    """Return the entry of the last axis that ``index`` names; one that is out of range is an error."""
    rows = index.size
    flat = reshape(logs, (rows, logs.shape[-1]))
    chosen = gather(flat, iota(rows, device=logs.device), reshape(index, (rows,)))
    return reshape(chosen, index.shape)


@with_form
@fuse_in_eager
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the cross entropy of targets in [0, 1] with probabilities ``input`` of the same shape.

    ``weight`` broadcasts to them. Probabilities outside [0, 1] give NaN or nonsense: the values are not read
    back to be checked. Raises ``ShapeError`` where the shapes differ.
    """
    _same_shapes("binary_cross_entropy", input, target)
    losses = bernoulli_loss(input, target)
    return _weighted("binary_cross_entropy", losses, weight, reduction)


@with_form
@fuse_in_eager
def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: Reduction = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return ``binary_cross_entropy`` of ``sigmoid(input)``, without its loss of precision.

    ``pos_weight`` (broadcast) multiplies the loss of positive targets.

    >>> import tensorbus as tb
    >>> round(tb.nn.functional.binary_cross_entropy_with_logits(tb.zeros((2,)), tb.ones((2,))).item(), 4)
    0.6931
    """
    name = "binary_cross_entropy_with_logits"
    _same_shapes(name, input, target)
    share: Any = 1.0 if pos_weight is None else (pos_weight - 1) * target + 1
    losses = (1 - target) * input + share * softplus(-input)
    return _weighted(name, losses, weight, reduction)


def _same_shapes(name: str, x: Tensor, target: Tensor) -> None:
    if x.shape != target.shape:
        raise ShapeError(f"{name}: input and target have one shape, got {x.shape} and {target.shape}.")


def _weighted(name: str, losses: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    if weight is not None:
        if broadcast_shapes(weight.shape, losses.shape) != losses.shape:
            raise ShapeError(
                f"{name}: a weight of shape {weight.shape} does not broadcast to {losses.shape}."
            )
        losses = losses * weight
    return reduced(name, losses, reduction)


@with_form
@fuse_in_eager
def soft_margin_loss(input: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return ``log(1 + exp(-target * input))`` for targets of 1 and -1."""
    return reduced("soft_margin_loss", softplus(-(target * input)), reduction)


@with_form
@fuse_in_eager
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Return the binary cross entropy with logits, averaged over the classes: the last axis."""
    losses = (1 - target) * input + softplus(-input)
    losses = losses if weight is None else losses * weight
    return reduced("multilabel_soft_margin_loss", mean(losses, axis=-1), reduction)


@with_form
@fuse_in_eager
def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """Return the hinge loss between the score of the class ``target`` and all others.

    ``input`` is ``(batch, classes)`` or ``(classes,)``, which may have a ``target`` of shape ``(1,)``; a
    single number is the score of the only class. ``p`` is 1 or 2. Raises ``ArgumentError`` otherwise.
    """
    if p not in (1, 2):
        raise ArgumentError(f"multi_margin_loss: p must be 1 or 2, got {p!r}.")
    if not input.shape:
        input = reshape(input, (1,))
    if (len(input.shape), target.shape) == (1, (1,)):
        input = reshape(input, (1, *input.shape))
    axis = _class_axis("multi_margin_loss", input)
    classes = input.shape[axis]
    check_weight("multi_margin_loss", weight, classes)
    if target.shape != input.shape[:axis]:
        raise ShapeError(
            f"multi_margin_loss: scores of shape {input.shape} need a target of {input.shape[:axis]}, got"
            f" {target.shape}."
        )
    own = reshape(_chosen(input, target), (*target.shape, 1))
    gaps = maximum(margin - own + input, 0.0)
    gaps = gaps * gaps if p == 2 else gaps
    if weight is not None:
        gaps = gaps * reshape(gather(weight, target), (*target.shape, 1))
    others = iota(classes, device=input.device) != reshape(target, (*target.shape, 1))
    return reduced("multi_margin_loss", sum(where(others, gaps, 0.0), axis=-1) / classes, reduction)


@with_form
@fuse_in_eager
def multilabel_margin_loss(input: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return the hinge loss between the scores of all classes that are named and those of all others.

    ``input`` is ``(batch, classes)``, ``(classes,)`` or one number; ``target`` has its shape and lists
    classes, up to the first -1. Raises ``ShapeError`` where the shapes differ, ``DtypeError`` for classes
    that are no integers.
    """
    _same_shapes("multilabel_margin_loss", input, target)
    if not input.shape:  # one class
        input, target = reshape(input, (1,)), reshape(target, (1,))
    if len(input.shape) > 2:
        raise ShapeError(f"multilabel_margin_loss: ([batch,] classes) is needed, got {input.shape}.")
    if not target.dtype.is_integer:
        raise DtypeError(f"multilabel_margin_loss: the target holds class indices, got {target.dtype}.")
    classes = input.shape[-1]
    ended = cumulative_sum(cast(target < 0, int64), axis=-1) > 0
    named = reshape(where(ended, -1, cast(target, int64)), (*target.shape, 1)) == iota(
        classes, device=input.device
    )
    own = sum(where(named, reshape(input, (*input.shape[:-1], 1, classes)), 0.0), axis=-1)
    gaps = maximum(1 - reshape(own, (*own.shape, 1)) + reshape(input, (*input.shape[:-1], 1, classes)), 0.0)
    counted = logical_not(ended | (target < 0))
    others = reshape(counted, (*counted.shape, 1)) & reshape(
        logical_not(any(named, axis=-2)), (*input.shape[:-1], 1, classes)
    )
    losses = sum(where(others, gaps, 0.0), axis=(-2, -1)) / classes
    return reduced("multilabel_margin_loss", losses, reduction)
