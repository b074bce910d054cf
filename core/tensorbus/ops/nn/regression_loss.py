"""Losses between numbers, and between distributions given by their parameters.

Names, arguments and values are PyTorch's. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``; inputs and
targets broadcast.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, DtypeError, ShapeError
from ..call_errors import with_form
from ..elementwise.arithmetic import abs, maximum
from ..elementwise.comparison import equal, greater
from ..elementwise.family import broadcast_in
from ..elementwise.transcendental import exp, log
from ..elementwise.where_cast import where
from ..fused_function import fuse_in_eager
from ..movement.movement import reshape
from ..reduction.reduction import sum
from .loss import Reduction, reduced

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def _weighted(name: str, losses: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """Reduce losses; with a weight for each, the mean is over the weights."""
    if weight is None:
        return reduced(name, losses, reduction)
    if weight.shape != losses.shape:
        raise ShapeError(f"{name}: weights of shape {losses.shape} are needed, got {weight.shape}.")
    return reduced(name, losses * weight, reduction, sum(weight))


@with_form
@fuse_in_eager
def mse_loss(
    input: Tensor, target: Tensor, *, reduction: Reduction = "mean", weight: Tensor | None = None
) -> Tensor:
    """Return the mean squared difference. Raises ``DtypeError`` for complex numbers.

    >>> import tensorbus as tb
    >>> tb.mse_loss(tb.asarray([3.0]), tb.asarray([1.0])).item()
    4.0
    """
    difference = input - target
    if difference.dtype.is_complex:
        raise DtypeError(
            f"mse_loss: real numbers are needed, got {input.dtype} and {target.dtype}; the squared distance"
            " of complex ones is abs(input - target) ** 2."
        )
    return _weighted("mse_loss", difference * difference, weight, reduction)


@with_form
@fuse_in_eager
def l1_loss(
    input: Tensor, target: Tensor, *, reduction: Reduction = "mean", weight: Tensor | None = None
) -> Tensor:
    """Return the mean absolute difference."""
    return _weighted("l1_loss", abs(input - target), weight, reduction)


@with_form
@fuse_in_eager
def huber_loss(
    input: Tensor, target: Tensor, *, reduction: Reduction = "mean", delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return half the squared difference up to ``delta``, and a straight line beyond (Huber 1964).

    The mean with a ``weight`` is over the elements, not over the weights, as PyTorch has it for this loss
    alone. Raises ``ArgumentError`` unless ``delta`` is above 0.

    >>> import tensorbus as tb
    >>> tb.nn.functional.huber_loss(tb.asarray([3.0]), tb.asarray([0.0])).item()
    2.5
    """
    if not delta > 0:
        raise ArgumentError(f"huber_loss: delta must be > 0, got {delta!r}.")
    size = abs(input - target)
    losses = where(greater(size, delta), delta * (size - 0.5 * delta), 0.5 * size * size)
    if weight is None:
        return reduced("huber_loss", losses, reduction)
    if weight.shape != losses.shape:
        raise ShapeError(f"huber_loss: weights of shape {losses.shape} are needed, got {weight.shape}.")
    return reduced("huber_loss", losses * weight, reduction)


@with_form
@fuse_in_eager
def smooth_l1_loss(
    input: Tensor, target: Tensor, *, reduction: Reduction = "mean", beta: float = 1.0
) -> Tensor:
    """Return the absolute difference less ``beta / 2``, and a parabola below ``beta`` (Girshick 2015).

    With ``beta`` 0 it is ``l1_loss``. Raises ``ArgumentError`` for a negative one.
    """
    if not beta >= 0:
        raise ArgumentError(f"smooth_l1_loss: beta must be >= 0, got {beta!r}.")
    size = abs(input - target)
    if beta == 0:
        return reduced("smooth_l1_loss", size, reduction)
    losses = where(size < beta, 0.5 / beta * size * size, size - 0.5 * beta)
    return reduced("smooth_l1_loss", losses, reduction)


@with_form
@fuse_in_eager
def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Return the divergence of ``target`` from the log probabilities ``input`` (Kullback and Leibler 1951).

    ``target`` holds probabilities, or with ``log_target`` their logarithms. ``reduction="batchmean"`` divides
    the sum by the length of the first axis, which is the divergence; ``"mean"`` divides by all elements.
    """
    if log_target:
        losses = exp(target) * (target - input)
    else:
        none = equal(target, 0.0)
        losses = where(none, 0.0, target * log(where(none, 1.0, target))) - target * input
    if reduction == "batchmean":
        return sum(losses) / (losses.shape[0] if losses.shape else 1)
    return reduced("kl_div", losses, reduction)


@with_form
@fuse_in_eager
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8, *,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """Return the negative log likelihood of counts under Poisson distributions of (log) rate ``input``.

    ``full`` adds Stirling's approximation of the term that does not depend on the rate.
    """
    losses = exp(input) - target * input if log_input else input - target * log(input + eps)
    if full:
        large = greater(target, 1)
        safe = where(large, target, 2.0)
        losses = losses + where(large, safe * log(safe) - safe + 0.5 * log(2 * math.pi * safe), 0.0)
    return reduced("poisson_nll_loss", losses, reduction)


@with_form
@fuse_in_eager
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, *,
    reduction: Reduction = "mean",
) -> Tensor:  # fmt: skip
    """Return the negative log likelihood of ``target`` under normal distributions (Nix and Weigend 1994).

    ``input`` is the mean and ``var`` the variance, which broadcasts to its shape, or lacks its last axis.
    Variances below ``eps`` count as ``eps``, and keep their gradient; so do negative ones in a tensor, whose
    values are not read back to be checked. ``full`` adds the constant term.
    Raises ``ShapeError`` where ``var`` does not fit, ``ArgumentError`` for a negative number.
    """
    spread: Any = var
    if not isinstance(var, (int, float)):
        if var.shape == input.shape[:-1] != input.shape:
            spread = reshape(var, (*var.shape, 1))
        elif broadcast_in("gaussian_nll_loss", (var.shape, input.shape)) != input.shape:
            raise ShapeError(f"gaussian_nll_loss: var of shape {var.shape} does not fit {input.shape}.")
        spread = spread + (maximum(spread.detach(), eps) - spread.detach())
        logarithm: Any = log(spread)
    else:
        if var < 0:
            raise ArgumentError(f"gaussian_nll_loss: var must be >= 0, got {var!r}.")
        spread = max(var, eps)
        logarithm = math.log(spread)
    difference = input - target
    losses = 0.5 * (logarithm + difference * difference / spread)
    if full:
        losses = losses + 0.5 * math.log(2 * math.pi)
    return reduced("gaussian_nll_loss", losses, reduction)
