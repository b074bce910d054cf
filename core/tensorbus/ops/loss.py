"""Losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..errors import DtypeError, ShapeError
from .comparison import equal
from .creation import iota
from .movement import broadcast_to, moveaxis, reshape
from .reduction import mean, sum
from .selection import where
from .softmax import log_softmax

if TYPE_CHECKING:
    from ..tensor import Tensor

Reduction = Literal["mean", "sum", "none"]


def _reduced(name: str, losses: Any, reduction: Reduction, total_weight: Any = None) -> Any:
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

    ``x`` is ``(batch, classes, *space)`` or ``(classes,)``; ``target`` holds class indices of the shape without
    the classes, or probabilities of the shape of ``x``. ``weight`` has one factor a class. The mean is over
    the weights of the targets that are not ``ignore_index``, as in PyTorch.

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
            raise ShapeError(f"cross_entropy: target probabilities of shape {target.shape} for logits of {x.shape}.")
        shares = moveaxis(target, axis, -1) * (1 - label_smoothing) + label_smoothing / classes
        losses = -sum(shares * logs if weight is None else shares * logs * weight, axis=-1)
        count = losses.size
        return _reduced("cross_entropy", losses, reduction, count)
    if not target.dtype.is_integer:
        raise DtypeError(f"cross_entropy: the target holds class indices or probabilities, got {target.dtype}.")
    if target.shape != x.shape[:axis] + x.shape[axis + 1 :]:
        raise ShapeError(
            f"cross_entropy: logits of shape {x.shape} need a target of shape"
            f" {x.shape[:axis] + x.shape[axis + 1 :]}, got {target.shape}."
        )
    place = iota(classes, dtype=target.dtype, device=x.device)
    hit = equal(place, reshape(target, (*target.shape, 1)))
    factors = where(hit, 1.0 if weight is None else weight, 0.0)
    chosen = sum(where(hit, -logs if weight is None else -logs * weight, 0.0), axis=-1)
    used = sum(factors, axis=-1)
    kept = target != ignore_index
    if label_smoothing:
        every = -sum(logs if weight is None else logs * weight, axis=-1)
        chosen = chosen * (1 - label_smoothing) + where(kept, every, 0.0) * (label_smoothing / classes)
    losses = where(kept, chosen, 0.0)
    return _reduced("cross_entropy", losses, reduction, sum(where(kept, used, 0.0)))


def mse_loss(x: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return the mean squared difference."""
    difference = x - target
    return _reduced("mse_loss", difference * difference, reduction)


def nll_loss(x: Tensor, target: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """Return the negative log likelihood of class indices ``target`` under log probabilities ``x``."""
    place = iota(x.shape[-1], dtype=target.dtype, device=x.device)
    hit = equal(broadcast_to(place, x.shape), reshape(target, (*target.shape, 1)))
    return _reduced("nll_loss", -sum(where(hit, x, 0.0), axis=-1), reduction)
