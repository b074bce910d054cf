"""Losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..dtypes import int64
from ..errors import DtypeError, ShapeError
from .creation import iota
from .indexing import gather
from .movement import moveaxis, reshape
from .reduction import mean, sum
from .selection import cast, where
from .softmax import log_softmax

if TYPE_CHECKING:
    from ..tensor import Tensor

Reduction = Literal["mean", "sum", "none"]


def _reduced(name: str, losses: Tensor, reduction: Reduction, total_weight: Any = None) -> Tensor:
    if reduction == "none":
        return losses
    if reduction == "sum":
        return sum(losses)
    if reduction != "mean":
        raise ShapeError(f"{name}: reduction must be 'mean', 'sum' or 'none', got {reduction!r}.")
    return mean(losses) if total_weight is None else sum(losses) / total_weight


def cross_entropy(
    x: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100,
    reduction: Reduction = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """Return the cross entropy between ``target`` and the softmax of the logits ``x``.

    ``x`` is ``(batch, classes, *space)`` or ``(classes,)``; ``target`` holds class indices of the shape
    without the classes, or probabilities of the shape of ``x``. ``weight`` has one factor a class. The mean
    is over the weights of the targets that are not ``ignore_index``, as in PyTorch.

    >>> import tensorbus as tb
    >>> round(tb.cross_entropy(tb.asarray([[0.0, 0.0]]), tb.asarray([1])).item(), 4)
    0.6931
    """
    axis = 1 if len(x.shape) > 1 else 0
    classes = x.shape[axis]
    logs = moveaxis(log_softmax(x, axis=axis), axis, -1)
    if weight is not None and weight.shape != (classes,):
        raise ShapeError(f"cross_entropy: a weight of shape ({classes},) is needed, got {weight.shape}.")
    if target.dtype.is_floating:
        if target.shape != x.shape:
            raise ShapeError(
                f"cross_entropy: target probabilities of shape {target.shape} for logits of {x.shape}."
            )
        shares = moveaxis(target, axis, -1) * (1 - label_smoothing) + label_smoothing / classes
        losses = -sum(shares * logs if weight is None else shares * logs * weight, axis=-1)
        count = losses.size
        return _reduced("cross_entropy", losses, reduction, count)
    if not target.dtype.is_integer:
        raise DtypeError(
            f"cross_entropy: the target holds class indices or probabilities, got {target.dtype}."
        )
    if target.shape != x.shape[:axis] + x.shape[axis + 1 :]:
        raise ShapeError(
            f"cross_entropy: logits of shape {x.shape} need a target of shape"
            f" {x.shape[:axis] + x.shape[axis + 1 :]}, got {target.shape}."
        )
    target = cast(target, int64)
    kept = target != ignore_index
    index = where(kept, target, 0)
    factors = where(kept, 1.0 if weight is None else gather(weight, index), 0.0)
    chosen = where(kept, _chosen(logs, index), 0.0)  # an ignored row may hold infinities
    losses = -chosen * factors
    if label_smoothing:
        every = -sum(logs if weight is None else logs * weight, axis=-1)
        losses = losses * (1 - label_smoothing) + where(kept, every, 0.0) * (label_smoothing / classes)
    return _reduced("cross_entropy", losses, reduction, sum(factors))


def _chosen(logs: Tensor, index: Tensor) -> Tensor:
    """Return the entry of the last axis that ``index`` names; one that is out of range is an error."""
    rows = logs.size // max(logs.shape[-1], 1)
    flat = reshape(logs, (rows, logs.shape[-1]))
    found = gather(flat, iota(rows, device=logs.device), reshape(index, (rows,)))
    return reshape(found, index.shape)


def mse_loss(x: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return the mean squared difference."""
    difference = x - target
    return _reduced("mse_loss", difference * difference, reduction)


def nll_loss(x: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return the negative log likelihood of class indices ``target`` under log probabilities ``x``."""
    if not target.dtype.is_integer:
        raise DtypeError(f"nll_loss: the target holds class indices, got {target.dtype}.")
    if x.shape[:-1] != target.shape:
        raise ShapeError(
            f"nll_loss: log probabilities of shape {x.shape} need a target of shape {x.shape[:-1]}."
        )
    return _reduced("nll_loss", -_chosen(x, cast(target, int64)), reduction)
