"""Fractional max pooling: windows whose places are drawn (Graham 2014, arXiv:1412.6071).

Names, arguments and values are PyTorch's, for the same ``_random_samples``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...dtypes.definition import float32, float64, int64
from ...errors import ArgumentError, ShapeError
from ...ops.call_errors import with_form
from ...ops.creation.creation import iota
from ...ops.elementwise.arithmetic import floor
from ...ops.elementwise.where_cast import cast
from ...ops.indexing.take_along_axis import take_along_axis
from ...ops.movement.movement import reshape
from ...ops.nn.convolution import Lengths, spread
from ...ops.reduction.reduction import argmax
from ...random import generator as random
from ...tensor.tensor import Tensor

Ratio = float | Sequence[float]


def sizes(
    name: str, rank: int, output_size: Lengths | None, output_ratio: Ratio | None
) -> tuple[tuple[int, ...] | None, tuple[float, ...] | None]:
    """Return the size, or the share of the input's size, along each axis. Raises ``ArgumentError``."""
    if (output_size is None) == (output_ratio is None):
        raise ArgumentError(f"{name}: give either output_size or output_ratio, and not both.")
    if output_size is not None:
        return spread(name, "output_size", output_size, rank, 1), None
    listed = tuple(output_ratio) if isinstance(output_ratio, Sequence) else (output_ratio,) * rank
    ratios = tuple([r for r in listed if isinstance(r, float) and 0 < r < 1])
    if len(listed) != rank or len(ratios) != rank:
        raise ArgumentError(
            f"{name}: output_ratio must be a number between 0 and 1, or {rank} of them, got {output_ratio!r}."
        )
    return None, ratios


def _starts(sample: Tensor, length: int, count: int, size: int) -> Tensor:
    """Return the first place of each of ``count`` windows of ``size``, for each sample: one more axis."""
    if count == 1:
        return reshape(cast(sample * 0, int64) + (length - size), (*sample.shape, 1))
    step = (length - size) / (count - 1)
    each = reshape(sample, (*sample.shape, 1))
    places = iota(count, device=sample.device)
    moved = floor((cast(places, sample.dtype) + each) * step) - floor(each * step)
    last = cast(places == count - 1, int64)
    return cast(moved, int64) * (1 - last) + (length - size) * last


def _pool(
    rank: int, x: Tensor, kernel_size: Lengths, output_size: Lengths | None, output_ratio: Ratio | None,
    return_indices: bool, samples: Tensor | None,
) -> Any:  # fmt: skip
    name = f"fractional_max_pool{rank}d"
    size = spread(name, "kernel_size", kernel_size, rank, 1)
    if x.ndim not in (rank + 1, rank + 2):
        raise ShapeError(f"{name}: {rank + 1} or {rank + 2} dimensions are needed, got shape {x.shape}.")
    lead, space = x.shape[:-rank], x.shape[-rank:]
    lengths, ratios = sizes(name, rank, output_size, output_ratio)
    counts = lengths or tuple(int(n * r) for n, r in zip(space, ratios or (), strict=True))
    if not all(1 <= m <= n - k + 1 for n, m, k in zip(space, counts, size, strict=True)):
        raise ShapeError(
            f"{name}: windows of {size} at {counts} places do not fit into {space}: along each axis, size +"
            f" places - 1 may be the length at most."
        )
    planes = (1, *lead)[-2:]
    if samples is None:
        exact = x.dtype if x.dtype in (float32, float64) else float32
        samples = random.uniform((*planes, rank), dtype=exact, device=x.device)
    elif samples.shape != (*planes, rank):
        raise ShapeError(
            f"{name}: _random_samples of shape {(*planes, rank)} are needed, got {samples.shape}."
        )
    rows = prod(planes)
    drawn = reshape(samples, (rows, rank))
    order = (1, 0) if rank == 2 else (0, 1, 2)  # which sample is which axis's, as in PyTorch
    flat: Any = 0
    for k, (n, m, w) in enumerate(zip(space, counts, size, strict=True)):
        first = reshape(_starts(drawn[:, order[k]], n, m, w), (rows, m, 1))
        shape = [rows, *(1,) * (2 * rank)]
        shape[1 + k], shape[1 + rank + k] = m, w
        flat = flat * n + reshape(first + iota(w, device=x.device), tuple(shape))
    flat = reshape(flat, (rows, prod(counts), prod(size)))
    every = reshape(flat, (rows, prod(counts) * prod(size)))
    patches = reshape(take_along_axis(reshape(x, (rows, prod(space))), every, axis=1), flat.shape)
    best = argmax(patches.detach(), axis=2, keepdims=True)
    out = reshape(take_along_axis(patches, best, axis=2), (*lead, *counts))
    if not return_indices:
        return out
    return out, reshape(take_along_axis(flat, best, axis=2), out.shape)


@with_form
def fractional_max_pool2d(
    input: Tensor, kernel_size: Lengths, output_size: Lengths | None = None,
    output_ratio: Ratio | None = None, return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """Return maxima over windows of ``([batch,] channels, height, width)`` at places that are drawn.

    ``output_size``: how many along each axis, or ``output_ratio``: how many for each place of the input.
    ``return_indices``: also where the maxima are, in each flat plane. ``_random_samples``, numbers in [0, 1)
    of shape ``(batch, channels, 2)``, are drawn where they are not given. Raises ``ArgumentError`` for both
    or none of the sizes, ``ShapeError`` for windows that do not fit.

    >>> import tensorbus as tb
    >>> x = tb.reshape(tb.arange(25.0), (1, 1, 5, 5))
    >>> tb.nn.functional.fractional_max_pool2d(x, 2, output_size=1).item()
    24.0
    """
    return _pool(2, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)


@with_form
def fractional_max_pool3d(
    input: Tensor, kernel_size: Lengths, output_size: Lengths | None = None,
    output_ratio: Ratio | None = None, return_indices: bool = False, _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """Return maxima over windows of ``([batch,] channels, depth, height, width)`` at places that are drawn.

    See ``fractional_max_pool2d``; ``_random_samples`` have the shape ``(batch, channels, 3)``.
    """
    return _pool(3, input, kernel_size, output_size, output_ratio, return_indices, _random_samples)
