"""Layers as functions: what the modules compute, with the parameters as arguments.

PyTorch's names and argument order, ``dim`` included; the ops themselves call it ``axis``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..autograd import no_grad
from ..errors import ArgumentError, ShapeError
from ..ops import convolution, normalization
from ..ops import softmax as _softmax
from ..ops.activation import gelu as gelu
from ..ops.activation import relu as relu
from ..ops.activation import sigmoid as sigmoid
from ..ops.activation import silu as silu
from ..ops.activation import softplus as softplus
from ..ops.convolution import avg_pool2d as avg_pool2d
from ..ops.convolution import max_pool2d as max_pool2d
from ..ops.creation import zeros_like
from ..ops.loss import cross_entropy as cross_entropy
from ..ops.loss import mse_loss as mse_loss
from ..ops.loss import nll_loss as nll_loss
from ..ops.matmul import matmul
from ..ops.movement import flatten as flatten
from ..ops.movement import pad as _pad
from ..ops.movement import permute_dims, reshape
from ..ops.normalization import layer_norm as layer_norm
from ..ops.reduction import mean
from ..ops.selection import cast
from ..ops.transcendental import rsqrt
from ..ops.transcendental import tanh as tanh
from ..random import Generator, bernoulli

if TYPE_CHECKING:
    from ..tensor import Tensor

Lengths = int | Sequence[int]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``x @ weight.T + bias``: ``(*, in)`` with ``(out, in)`` and ``(out,)`` gives ``(*, out)``.

    Raises ``ShapeError`` where they do not fit.
    """
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear: an input of shape {x.shape} and a weight of shape {weight.shape} do not fit; the"
            f" input's last"
            f" axis must be as long as the weight's second."
        )
    out = matmul(x, permute_dims(weight, (1, 0)))
    if bias is None:
        return out
    if bias.shape != (weight.shape[0],):
        raise ShapeError(f"linear: a bias of shape ({weight.shape[0]},) is needed, got {bias.shape}.")
    return out + bias


def softmax(x: Tensor, dim: int) -> Tensor:
    """Return ``exp(x)`` divided by its sum along ``dim``."""
    return _softmax.softmax(x, axis=dim)


def log_softmax(x: Tensor, dim: int) -> Tensor:
    """Return the logarithm of ``softmax``, without its loss of precision."""
    return _softmax.log_softmax(x, axis=dim)


def dropout(
    x: Tensor, p: float = 0.5, training: bool = True, *, generator: Generator | None = None
) -> Tensor:
    """Return ``x`` with each element zeroed with probability ``p``, the others times ``1 / (1 - p)``.

    The mask comes from the counter-based generator: one seed drops the same elements on every device.
    Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, JMLR 2014. Raises ``ArgumentError`` unless
    ``0 <= p <= 1``.
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: a probability lies in [0, 1], got {p!r}.")
    if not training or p == 0:
        return x
    if p == 1:
        return x * zeros_like(x)
    kept = bernoulli(1 - p, x.shape, device=x.device, generator=generator)
    return x * (cast(kept, x.dtype) * (1 / (1 - p)))


def batch_norm(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Return ``x`` of shape ``(batch, channels, *space)`` normalized per channel (Ioffe and Szegedy 2015).

    In training by the statistics of the batch, which then move the running ones (those of shape
    ``(channels,)``, rebound in place) by ``momentum``, the variance with Bessel's correction; else by the
    running ones. Raises ``ShapeError`` for a wrong number of channels, or for one value per channel in
    training.
    """
    if x.ndim < 2:
        raise ShapeError(f"batch_norm: (batch, channels, *space) is needed, got shape {x.shape}.")
    channels = x.shape[1]
    vectors = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for name, given in vectors.items():
        if given is not None and given.shape != (channels,):
            raise ShapeError(
                f"batch_norm: for an input of shape {x.shape} the {name} has {channels} elements, got shape"
                f" {given.shape}."
            )
    if not training:
        if running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: without training, running_mean and running_var are needed.")
        return normalization.batch_norm(x, running_mean, running_var, weight, bias, eps)
    axes = (0, *range(2, x.ndim))
    row = (1, channels, *(1,) * (x.ndim - 2))
    count = math.prod(x.shape[a] for a in axes)
    if count <= 1:
        raise ShapeError(f"batch_norm: training needs more than one value per channel, got shape {x.shape}.")
    average = mean(x, axis=axes, keepdims=True)
    centred = x - average
    variance = mean(centred * centred, axis=axes, keepdims=True)
    with no_grad():
        _follow(running_mean, average, momentum)
        _follow(running_var, variance * (count / (count - 1)), momentum)
    scale = rsqrt(variance + eps)
    out = centred * (scale if weight is None else scale * reshape(weight, row))
    return out if bias is None else out + reshape(bias, row)


def _follow(running: Tensor | None, found: Tensor, momentum: float) -> None:
    if running is not None:
        fresh = cast(reshape(found.detach(), running.shape), running.dtype)
        running.rebind(running * (1 - momentum) + fresh * momentum)


def conv1d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1, padding: Lengths | str = 0,
    dilation: Lengths = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the convolution over one axis: ``([batch,] in, length)`` with ``(out, in / groups, kernel)``."""
    return _conv(1, x, weight, bias, stride, padding, dilation, groups)


def conv2d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1, padding: Lengths | str = 0,
    dilation: Lengths = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Convolve over two axes: ``([batch,] in, *space)`` by ``(out, in / groups, *kernel)``."""
    return _conv(2, x, weight, bias, stride, padding, dilation, groups)


def conv3d(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1, padding: Lengths | str = 0,
    dilation: Lengths = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the convolution over three axes."""
    return _conv(3, x, weight, bias, stride, padding, dilation, groups)


def _conv(
    rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Lengths, padding: Lengths | str,
    dilation: Lengths, groups: int,
) -> Tensor:  # fmt: skip
    name = f"conv{rank}d"
    if weight.ndim != rank + 2 or x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: an input of {rank + 2} dimensions (or {rank + 1}, without the batch) and a weight of"
            f" {rank + 2}"
            f" are needed, got shapes {x.shape} and {weight.shape}."
        )
    if x.ndim == rank + 1:
        alone = _conv(rank, reshape(x, (1, *x.shape)), weight, bias, stride, padding, dilation, groups)
        return reshape(alone, alone.shape[1:])
    if isinstance(padding, str):
        x, padding = _padded(name, rank, x, weight, stride, padding, dilation)
    run = (convolution.conv1d, convolution.conv2d, convolution.conv3d)[rank - 1]
    out: Tensor = run(x, weight, bias, stride, padding, dilation, groups)
    return out


def _padded(
    name: str, rank: int, x: Tensor, weight: Tensor, stride: Lengths, padding: str, dilation: Lengths
) -> tuple[Tensor, Lengths]:
    """Turn ``"same"`` and ``"valid"`` into numbers, padding by hand where the two sides differ."""
    if padding == "valid":
        return x, 0
    if padding != "same":
        raise ArgumentError(f"{name}: padding must be numbers, 'same' or 'valid', got {padding!r}.")
    if any(s != 1 for s in convolution.spread(name, "stride", stride, rank, 1)):
        raise ArgumentError(f"{name}: padding='same' needs stride 1, got {stride!r}.")
    total = [
        d * (k - 1)
        for d, k in zip(
            convolution.spread(name, "dilation", dilation, rank, 1), weight.shape[2:], strict=True
        )
    ]
    low = tuple(n // 2 for n in total)
    if all(n % 2 == 0 for n in total):
        return x, low
    high = tuple(n - n // 2 for n in total)
    return _pad(x, (0, 0, *low), (0, 0, *high)), 0
