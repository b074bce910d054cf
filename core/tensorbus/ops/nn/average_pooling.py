"""Means and ``p``-norms of windows over the last one, two or three axes.

Names, arguments and values are PyTorch's. Inputs are ``([batch,] channels, *space)``; any number of axes may
come before the space.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes import definition as dt
from ...errors import ArgumentError, ShapeError
from ..call_errors import with_form
from ..creation.creation import full
from ..definition import Shape
from ..elementwise.activation import relu
from ..elementwise.arithmetic import abs, fmod, sign
from ..elementwise.transcendental import power
from ..elementwise.where_cast import cast, narrowed, widened
from ..movement.movement import concat, pad, reshape
from ..movement.windows import windows
from ..reduction.reduction import mean, sum
from .convolution import Lengths, spread
from .pooling import ONES, at_most_half, beyond, default_stride

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def _sums(
    name: str, rank: int, x: Tensor, size: Shape, step: Shape, edge: Shape, ceil_mode: bool
) -> tuple[Any, Shape]:
    """Return the windows of ``x`` padded with zeros, and how many elements ``ceil_mode`` added."""
    if len(x.shape) <= rank:
        raise ShapeError(f"{name}: at least {rank + 1} dimensions are needed, got shape {x.shape}.")
    space, lead = x.shape[-rank:], (0,) * (len(x.shape) - rank)
    more = tuple(map(beyond, space, size, step, edge, ONES)) if ceil_mode else (0,) * rank
    if any(n + 2 * p + m < k for n, p, m, k in zip(space, edge, more, size, strict=True)):
        raise ShapeError(f"{name}: a window of {size} does not fit an input of {space} padded by {edge}.")
    high = tuple(p + m for p, m in zip(edge, more, strict=True))
    padded = pad(x, lead + edge, lead + high) if any(high) else x
    return windows(padded, size, step, ONES[:rank]), more


def _average(
    rank: int, x: Tensor, kernel_size: Lengths, stride: Lengths | None, padding: Lengths, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    name = f"avg_pool{rank}d"
    if divisor_override == 0:
        raise ArgumentError(f"{name}: divisor_override must not be 0.")
    size = spread(name, "kernel_size", kernel_size, rank, 1)
    step, edge = default_stride(name, stride, size), at_most_half(name, padding, size)
    cut, more = _sums(name, rank, x, size, step, edge, ceil_mode)
    axes = tuple(range(-rank, 0))
    out: Tensor
    if x.dtype.is_integer:
        divisors = _counts(rank, x, cut, size, step, edge, count_include_pad)
        divisors = divisors if divisor_override is None else divisor_override
        total = sum(cut, axis=axes, dtype=dt.int64)
        out = cast((total - fmod(total, divisors)) // divisors, x.dtype)  # rounded towards zero
        return out
    if divisor_override is not None:
        out = narrowed(sum(widened(cut), axis=axes) * (1 / divisor_override), x.dtype)
        return out
    if not any(more) and (count_include_pad or not any(edge)):
        return mean(cut, axis=axes)
    counts = _counts(rank, x, cut, size, step, edge, count_include_pad)
    out = narrowed(sum(widened(cut), axis=axes) / counts, x.dtype)
    return out


def _counts(
    rank: int, x: Any, cut: Any, size: Shape, step: Shape, edge: Shape, count_include_pad: bool
) -> Any:
    """Return how many elements each window has, without what ``ceil_mode`` added."""
    counts: Any = 1
    for k, n in enumerate(x.shape[-rank:]):
        low, high = (0, n + 2 * edge[k]) if count_include_pad else (edge[k], n + edge[k])
        first = range(0, cut.shape[k - 2 * rank] * step[k], step[k])
        lengths = [min(at + size[k], high) - max(at, low) for at in first]
        counts = counts * reshape(_column(lengths, x), (len(lengths), *ONES[k + 1 : rank]))
    return counts


def _column(lengths: list[int], x: Tensor) -> Any:
    """Return whole numbers on the device of ``x``: one constant for each stretch of equal ones."""
    runs: list[list[int]] = []
    for n in lengths:
        if runs and runs[-1][0] == n:
            runs[-1][1] += 1
        else:
            runs.append([n, 1])
    dtype = dt.int64 if x.dtype.is_integer else widened(x).dtype
    return concat([full((count,), n, dtype=dtype, device=x.device) for n, count in runs])


@with_form
def avg_pool1d(
    input: Tensor, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
    ceil_mode: bool = False, count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Return the mean of each window over the last axis: see ``avg_pool2d``."""
    return _average(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@with_form
def avg_pool2d(
    input: Tensor, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean of each window over the last two axes; ``stride`` defaults to the window.

    Padding counts as zeros unless ``count_include_pad`` is False; what ``ceil_mode`` adds never counts.
    ``divisor_override`` divides the sums instead. Raises ``ShapeError`` where no window fits.
    """
    return _average(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@with_form
def avg_pool3d(
    input: Tensor, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the mean of each window over the last three axes: see ``avg_pool2d``."""
    return _average(3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _norms(
    rank: int, x: Tensor, norm_type: float, kernel_size: Lengths, stride: Lengths | None, ceil_mode: bool
) -> Tensor:
    """Windows are means times their full size, as in PyTorch: shorter ones at the end count for more."""
    size = spread(f"lp_pool{rank}d", "kernel_size", kernel_size, rank, 1)
    means: Any = _average(rank, power(x, norm_type), size, stride, 0, ceil_mode, True, None)
    return power(sign(means) * relu(abs(means)) * prod(size), 1.0 / norm_type)


@with_form
def lp_pool1d(
    input: Tensor, norm_type: float, kernel_size: Lengths, stride: Lengths | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``sum(x ** norm_type) ** (1 / norm_type)`` of each window over the last axis."""
    return _norms(1, input, norm_type, kernel_size, stride, ceil_mode)


@with_form
def lp_pool2d(
    input: Tensor, norm_type: float, kernel_size: Lengths, stride: Lengths | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``sum(x ** norm_type) ** (1 / norm_type)`` of each window over the last two axes."""
    return _norms(2, input, norm_type, kernel_size, stride, ceil_mode)


@with_form
def lp_pool3d(
    input: Tensor, norm_type: float, kernel_size: Lengths, stride: Lengths | None = None,
    ceil_mode: bool = False,
) -> Tensor:  # fmt: skip
    """Return ``sum(x ** norm_type) ** (1 / norm_type)`` of each window over the last three axes."""
    return _norms(3, input, norm_type, kernel_size, stride, ceil_mode)
