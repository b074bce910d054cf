"""Pooling to a given size, and the reverse of max pooling.

Names, arguments and values are PyTorch's: output ``i`` of ``m`` covers the inputs from ``floor(i * n / m)``
up to ``ceil((i + 1) * n / m)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ...errors import ShapeError
from ..call_errors import with_form
from ..creation.creation import iota, zeros
from ..definition import Shape
from ..elementwise.comparison import equal, less
from ..elementwise.where_cast import cast, narrowed, where, widened
from ..indexing.gather_scatter import gather, scatter
from ..movement.movement import broadcast_to, moveaxis, permute_dims, reshape
from ..reduction.reduction import argmax, mean, sum
from .convolution import Lengths, spread
from .pooling import default_stride, lowest, max_over_windows

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

OutputSize = int | Sequence[int | None] | None


def _sizes(name: str, rank: int, x: Tensor, output_size: OutputSize) -> Shape:
    space = x.shape[len(x.shape) - rank :]
    if len(x.shape) <= rank or 0 in space:
        raise ShapeError(
            f"{name}: at least {rank + 1} dimensions, the last {rank} not empty, are needed; got {x.shape}."
        )
    lengths: Any = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    if len(lengths) != rank or not all(m is None or (isinstance(m, int) and m >= 0) for m in lengths):
        raise ShapeError(
            f"{name}: output_size must be an integer >= 0, None, or {rank} of them, got {output_size!r}."
        )
    return tuple(n if m is None else m for n, m in zip(space, lengths, strict=True))


def _covered(x: Tensor, n: int, m: int) -> tuple[Any, Any, Any]:
    """Return the places that each of ``m`` outputs covers, which of them count, and how many do."""
    places = iota(m, device=x.device)
    first, end = places * n // m, -((places + 1) * -n // m)
    longest = max((-(-(i + 1) * n // m) - i * n // m for i in range(m)), default=1)
    at = reshape(first, (m, 1)) + iota(longest, device=x.device)
    inside = less(at, reshape(end, (m, 1)))
    return where(inside, at, 0), inside, end - first


def _average(rank: int, x: Tensor, output_size: OutputSize) -> Tensor:
    """Axes that are cut evenly make one mean; the others follow one by one."""
    sizes = _sizes(f"adaptive_avg_pool{rank}d", rank, x, output_size)
    space = x.shape[len(x.shape) - rank :]
    shape, over = [*x.shape[: len(x.shape) - rank]], []
    for n, m in zip(space, sizes, strict=True):
        even = m and n % m == 0 and n != m
        shape += (m, n // m) if even else (n,)
        if even:
            over.append(len(shape) - 1)
    left = [n if m and n % m == 0 else m for n, m in zip(space, sizes, strict=True)]
    out: Any = widened(x) if any(m != n for n, m in zip(space, left, strict=True)) else x
    if over:
        out = mean(reshape(out, tuple(shape)), axis=tuple(over))
    for k, (n, m) in enumerate(zip(space, left, strict=True)):
        if n == m:
            continue
        axis = len(x.shape) - rank + k
        at, inside, count = _covered(x, n, m)
        parts = gather(moveaxis(out, axis, 0), at)
        tail = (1,) * (len(out.shape) - 1)
        total = sum(where(reshape(inside, (*inside.shape, *tail)), parts, 0.0), axis=1)
        out = moveaxis(total / cast(reshape(count, (m, *tail)), total.dtype), 0, axis)
    result: Tensor = x.clone() if out is x else narrowed(out, x.dtype)
    return result


def _largest(rank: int, x: Tensor, output_size: OutputSize, return_indices: bool) -> Any:
    """Gather every window whole: the first largest of it takes the gradient, as in PyTorch."""
    sizes = _sizes(f"adaptive_max_pool{rank}d", rank, x, output_size)
    lead, space = x.shape[: len(x.shape) - rank], x.shape[len(x.shape) - rank :]
    if all(m and n % m == 0 for n, m in zip(space, sizes, strict=True)):
        size = tuple(n // m for n, m in zip(space, sizes, strict=True))
        return max_over_windows(rank, x, size, None, 0, 1, False, return_indices)
    flat: Any = 0
    inside: Any = None
    for k, (n, m) in enumerate(zip(space, sizes, strict=True)):
        at, valid, _ = _covered(x, n, m)
        shape = [1] * (2 * rank)
        shape[k], shape[rank + k] = at.shape
        flat = flat * n + reshape(at, tuple(shape))
        valid = reshape(valid, tuple(shape))
        inside = valid if inside is None else inside & valid
    longest = flat.shape[rank:]
    flat = reshape(flat, (*sizes, prod(longest)))
    inside = reshape(inside, flat.shape)
    rows = permute_dims(reshape(x, (prod(lead), prod(space))), (1, 0))
    patches = where(reshape(inside, (*inside.shape, 1)), gather(rows, flat), lowest(x.dtype))
    best = argmax(patches.detach(), axis=rank, keepdims=True)
    hit = equal(reshape(iota(flat.shape[-1], device=x.device), (flat.shape[-1], 1)), best)
    values = sum(where(hit, patches, 0), axis=rank)
    out = reshape(moveaxis(cast(values, x.dtype), -1, 0), (*lead, *sizes))
    if not return_indices:
        return out
    place = sum(where(hit, reshape(flat, (*flat.shape, 1)), 0), axis=rank)
    return out, reshape(moveaxis(place, -1, 0), (*lead, *sizes))


@with_form
def adaptive_avg_pool1d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Return means over the last axis, so that ``output_size`` of them are left."""
    return _average(1, input, output_size)


@with_form
def adaptive_avg_pool2d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Return means over the last two axes, so that ``output_size`` of them are left; None keeps a length.

    >>> import tensorbus as tb
    >>> tb.nn.functional.adaptive_avg_pool2d(tb.asarray([[[1.0, 2.0, 3.0]]]), (1, 2)).tolist()
    [[[1.5, 2.5]]]
    """
    return _average(2, input, output_size)


@with_form
def adaptive_avg_pool3d(input: Tensor, output_size: OutputSize) -> Tensor:
    """Return means over the last three axes, so that ``output_size`` of them are left."""
    return _average(3, input, output_size)


@with_form
def adaptive_max_pool1d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """Return maxima over the last axis, so that ``output_size`` of them are left."""
    return _largest(1, input, output_size, return_indices)


@with_form
def adaptive_max_pool2d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """Return maxima over the last two axes, so that ``output_size`` are left, and where they were found."""
    return _largest(2, input, output_size, return_indices)


@with_form
def adaptive_max_pool3d(input: Tensor, output_size: OutputSize, return_indices: bool = False) -> Any:
    """Return maxima over the last three axes, so that ``output_size`` are left."""
    return _largest(3, input, output_size, return_indices)


def _unpool(
    rank: int, x: Tensor, indices: Tensor, kernel_size: Lengths, stride: Lengths | None, padding: Lengths,
    output_size: Sequence[int] | None,
) -> Tensor:  # fmt: skip
    name = f"max_unpool{rank}d"
    if x.shape != indices.shape or len(x.shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: values and indices of one shape, of {rank + 1} or {rank + 2} dimensions, are needed;"
            f" got {x.shape} and {indices.shape}."
        )
    size = spread(name, "kernel_size", kernel_size, rank, 1)
    step, edge = default_stride(name, stride, size), spread(name, "padding", padding, rank)
    space = tuple(
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(x.shape[-rank:], step, edge, size, strict=True)
    )
    if output_size is not None:
        lengths = tuple(output_size)[-rank:]
        if len(lengths) != rank or any(abs(a - n) >= s for a, n, s in zip(lengths, space, step, strict=True)):
            raise ShapeError(
                f"{name}: output_size must be within {step} of {space}, got {tuple(output_size)}."
            )
        space = lengths
    lead = x.shape[:-rank]
    rows, count = prod(lead), prod(x.shape[-rank:])
    row = broadcast_to(reshape(iota(rows, device=x.device), (rows, 1)), (rows, count))
    blank = zeros((rows, prod(space)), dtype=x.dtype, device=x.device)
    flat = scatter(blank, reshape(x, (rows, count)), row, reshape(indices, (rows, count)))
    return reshape(flat, (*lead, *space))


@with_form
def max_unpool1d(
    input: Tensor, indices: Tensor, kernel_size: Lengths, stride: Lengths | None = None,
    padding: Lengths = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the values of a max pooling back to where ``indices`` say; the rest is 0. See ``max_unpool2d``."""
    return _unpool(1, input, indices, kernel_size, stride, padding, output_size)


@with_form
def max_unpool2d(
    input: Tensor, indices: Tensor, kernel_size: Lengths, stride: Lengths | None = None,
    padding: Lengths = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the values of a max pooling back to where ``indices`` say; the rest is 0.

    ``output_size`` says which of the sizes that pool to the input's is meant. Raises ``IndexingError`` for
    an index that is not there.
    """
    return _unpool(2, input, indices, kernel_size, stride, padding, output_size)


@with_form
def max_unpool3d(
    input: Tensor, indices: Tensor, kernel_size: Lengths, stride: Lengths | None = None,
    padding: Lengths = 0, output_size: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Put the values of a max pooling back to where ``indices`` say. See ``max_unpool2d``."""
    return _unpool(3, input, indices, kernel_size, stride, padding, output_size)
