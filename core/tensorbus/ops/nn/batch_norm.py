"""Normalization of channels by statistics: those of the batch, of each instance, or running ones.

Names, arguments and values are PyTorch's. Running statistics are tensors that are rebound in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, ShapeError
from ...tensor.grad_mode import no_grad
from ..call_errors import with_form
from ..definition import Shape
from ..elementwise.transcendental import rsqrt
from ..elementwise.where_cast import cast, narrowed, widened
from ..fused_function import fuse_in_eager, save_for_backward, without_history
from ..movement.movement import reshape
from ..reduction.reduction import mean
from .normalization import by_channel, standardize

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


@with_form
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Return ``(batch, channels, *space)`` normalized per channel (Ioffe and Szegedy 2015).

    In training by the statistics of the batch, which then move the running ones (those of shape
    ``(channels,)``, rebound in place) by ``momentum``, the variance with Bessel's correction; else by the
    running ones. A batch of no examples moves nothing. Raises ``ShapeError`` for a wrong number of channels,
    or for one value per channel in training.
    """
    _check("batch_norm", input, running_mean, running_var, weight, bias)
    if not training:
        return _by_running(input, "batch_norm", running_mean, running_var, weight, bias, eps)
    axes = (0, *range(2, len(input.shape)))
    count = prod(input.shape[a] for a in axes)
    if not count:
        return by_channel(+input, "batch_norm", weight, bias)
    if count == 1:
        raise ShapeError(
            f"batch_norm: training needs more than one value per channel, got shape {input.shape}."
        )
    share = count / (count - 1)
    if running_mean is not None and running_var is not None and _follows(input, running_mean, momentum):
        known = _apart(running_mean), _apart(running_var)
        out, *moved = _by_batch_followed(input, weight, bias, *known, None, axes, eps, momentum, share)
        _rebind((running_mean, running_var), moved)
        return out
    out, average, variance = _by_batch(input, weight, bias, axes, eps)
    _follow(running_mean, average, momentum)
    _follow(running_var, variance, momentum, share)
    return out


def counted_batch_norm(
    input: Tensor, running_mean: Tensor, running_var: Tensor, batches: Tensor, weight: Tensor | None,
    bias: Tensor | None, momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    """Return what ``batch_norm`` does in training, and add 1 to ``batches``: by one program, where it can."""
    axes = (0, *range(2, len(input.shape)))
    count = prod([input.shape[a] for a in axes])
    if count < 2 or batches.device != running_mean.device or not _follows(input, running_mean, momentum):
        with no_grad():
            batches += 1
        return batch_norm(input, running_mean, running_var, weight, bias, True, momentum, eps)
    _check("batch_norm", input, running_mean, running_var, weight, bias)
    known = _apart(running_mean), _apart(running_var), _apart(batches)
    out, *moved = _by_batch_followed(
        input, weight, bias, *known, axes, eps, momentum, count / (count - 1)
    )  # fmt: skip
    _rebind((running_mean, running_var, batches), moved)
    return out


def _follows(x: Tensor, running: Tensor, momentum: Any) -> bool:
    """Return whether statistics move in the program that finds them.

    Under a transform of functions the input is a value of its level, which the statistics do not become.
    """
    there, here = running._vtype.device, x._vtype.device
    return type(momentum) is float and (there is here or there == here)


def _apart(x: Tensor) -> Tensor:
    """Return what is no view of ``x`` and has no history: there is nobody to tell when ``x`` is rebound."""
    return x._alias() if x._node is None else x.detach()._alias()


def _rebind(cells: Sequence[Tensor], moved: Sequence[Tensor]) -> None:
    for cell, value in zip(cells, moved, strict=True):
        cell.rebind(value, by="batch_norm")


@with_form
def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Return ``(batch, channels, *space)`` normalized per channel of each example (Ulyanov et al. 2016).

    Running statistics, where given, follow the mean of those of the examples. Raises ``ShapeError`` for a
    wrong number of channels, or for one value per channel with ``use_input_stats``.
    """
    _check("instance_norm", input, running_mean, running_var, weight, bias)
    if not use_input_stats:
        return _by_running(input, "instance_norm", running_mean, running_var, weight, bias, eps)
    batch, channels, *space = input.shape
    count = prod(space)
    if count <= 1:
        raise ShapeError(
            f"instance_norm: more than one value per channel of an example is needed, got shape"
            f" {input.shape}."
        )
    rows = reshape(input, (batch, channels, count))
    if running_mean is not None or running_var is not None:
        wide = widened(rows.detach())
        average = mean(wide, axis=-1, keepdims=True)
        variance = mean((wide - average) ** 2, axis=-1) * (count / (count - 1))
        _follow(running_mean, mean(average, axis=0), momentum)
        _follow(running_var, mean(variance, axis=0), momentum)
    own = None if weight is None else weight._apart()
    return by_channel(reshape(standardize(rows, 1, eps), input.shape), "instance_norm", own, bias)


@fuse_in_eager
def _by_batch(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, axes: Shape, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``x`` normalized over ``axes``, and the mean and the variance there."""
    wide = widened(x)
    average = save_for_backward(mean(wide, axis=axes, keepdims=True))
    centred = wide - average
    variance = save_for_backward(mean(centred * centred, axis=axes, keepdims=True))
    scale = rsqrt(variance + eps)
    if weight is not None:
        scale = scale * reshape(weight, (x.shape[1], *(1,) * (len(x.shape) - 2)))
    out = by_channel(narrowed(centred * scale, x.dtype), "batch_norm", None, bias)
    return out, average, variance


@fuse_in_eager
@without_history(1, 2, 3)
def _by_batch_followed(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor,
    batches: Tensor | None, axes: Shape, eps: float, momentum: float, share: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return ``x`` normalized over ``axes``, both running statistics, moved, and the batches, one more."""
    out, average, variance = _by_batch(x, weight, bias, axes, eps)
    average = _moved(running_mean, average.detach(), momentum, 1.0)
    moved = average, _moved(running_var, variance.detach(), momentum, share)
    return (out, *moved) if batches is None else (out, *moved, batches + 1)


def _check(
    name: str, x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None,
) -> None:  # fmt: skip
    if len(x.shape) < 2:
        raise ShapeError(f"{name}: (batch, channels, *space) is needed, got shape {x.shape}.")
    vectors = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for role, vector in vectors.items():
        if vector is not None and vector.shape != (x.shape[1],):
            raise ShapeError(
                f"{name}: for an input of shape {x.shape} the {role} has {x.shape[1]} elements, got shape"
                f" {vector.shape}."
            )


@fuse_in_eager
def _by_running(
    x: Tensor, name: str, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None,
    bias: Tensor | None, eps: float,
) -> Tensor:  # fmt: skip
    if running_mean is None or running_var is None:
        raise ArgumentError(
            f"{name}: without statistics of the input, running_mean and running_var are needed."
        )
    row = (x.shape[1], *(1,) * (len(x.shape) - 2))
    scale = rsqrt(running_var + eps)
    scale = scale if weight is None else scale * weight
    centred = widened(x) - reshape(running_mean, row)
    return by_channel(narrowed(centred * reshape(scale, row), x.dtype), name, None, bias)


def _follow(running: Tensor | None, statistic: Tensor, momentum: float, share: float = 1.0) -> None:
    if running is not None:
        running.rebind(_moved(running.detach(), statistic.detach(), momentum, share), by="batch_norm")


@fuse_in_eager
def _moved(running: Tensor, statistic: Tensor, momentum: float, share: float) -> Tensor:
    """Return a running statistic, moved by ``momentum`` towards ``share`` of one that was found."""
    statistic = statistic if share == 1 else statistic * share
    fresh = cast(reshape(statistic, running.shape), running.dtype)
    return running * (1 - momentum) + fresh * momentum
