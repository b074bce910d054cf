"""Max pooling over windows of the last one, two or three axes, and what it shares with other pooling.

Names, arguments and values are PyTorch's. Inputs are ``([batch,] channels, *space)``; any number of axes may
come before the space.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from ...dtypes.definition import REAL, DType, float8_e4m3fn, int64, integer_range
from ...errors import ShapeError
from .. import sharding_rules
from ..batching_rules import spread as spread_examples
from ..batching_rules import unchanged
from ..call_errors import with_form
from ..creation.creation import full, iota
from ..definition import Op, Shape, Spec, table
from ..elementwise.comparison import equal, isnan, logical_and, logical_or
from ..elementwise.where_cast import cast, where
from ..movement.movement import pad, reshape, slice
from ..movement.windows import fold, windows
from ..reduction.reduction import argmax
from .convolution import Lengths, spread

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

ONES: Final = (1, 1, 1)


def _pool_arguments(
    x: Any, /, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
    dilation: Lengths = 1, *, rank: int = 2,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    size = spread("max_pool", "kernel_size", kernel_size, rank, 1)
    return (x,), {
        "size": size,
        "stride": default_stride("max_pool", stride, size),
        "padding": at_most_half("max_pool", padding, size),
        "dilation": spread("max_pool", "dilation", dilation, rank, 1),
    }


def default_stride(name: str, stride: Lengths | None, size: Shape) -> Shape:
    """Return the stride, which is the size of the window where none is given."""
    return size if stride is None or stride == () else spread(name, "stride", stride, len(size), 1)


def at_most_half(name: str, padding: Lengths, size: Shape) -> Shape:
    """Return the padding. Raises ``ShapeError`` for more than half a window: one would lie in it wholly."""
    lengths = spread(name, "padding", padding, len(size))
    if any(2 * p > k for p, k in zip(lengths, size, strict=True)):
        raise ShapeError(f"{name}: padding {lengths} must be at most half of the kernel size {size}.")
    return lengths


def _pool_infer(
    specs: tuple[Spec, ...], *, size: Shape, stride: Shape, padding: Shape, dilation: Shape
) -> Spec:
    (x,), rank = specs, len(size)
    if len(x.shape) < rank + 1:
        raise ShapeError(f"max_pool: at least {rank + 1} dimensions are needed, got shape {x.shape}.")
    space = []
    for n, k, s, p, d in zip(x.shape[-rank:], size, stride, padding, dilation, strict=True):
        if n + 2 * p < d * (k - 1) + 1:
            raise ShapeError(
                f"max_pool: a window of {size} does not fit an input of shape {x.shape} padded by {padding}."
            )
        space.append((n + 2 * p - d * (k - 1) - 1) // s + 1)
    return Spec((*x.shape[:-rank], *space), x.dtype)


def lowest(dtype: DType) -> float | int:
    """Return what no element of ``dtype`` is less than."""
    if dtype is float8_e4m3fn:  # has no infinities
        return -448.0
    return integer_range(dtype)[0] if dtype.is_integer else float("-inf")


def _patches(x: Any, size: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Any:
    lead = (0,) * (len(x.shape) - len(size))
    if any(padding):
        x = pad(x, lead + padding, lead + padding, lowest(x.dtype))
    patches = windows(x, size, stride, dilation)
    return reshape(patches, (*patches.shape[: len(patches.shape) - len(size)], prod(size)))


def _best(x: Any, size: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Any:
    """Return where in its window the first largest element is, never in the padding; NaN is the largest."""
    patches = _patches(x, size, stride, padding, dilation)
    if not any(padding):
        return argmax(patches, axis=-1, keepdims=True)
    top = table["max"](patches, axis=-1, keepdims=True)
    inside = _patches(full(x.shape[-len(size) :], 1, device=x.device), size, stride, padding, dilation) == 1
    hit = equal(patches, top)
    if x.dtype.is_floating:
        hit = logical_or(hit, isnan(patches))
    return argmax(cast(logical_and(hit, inside), int64), axis=-1, keepdims=True)


def _pool_gradient(g: Any, x: Any, size: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Any:
    """Return the gradient: the first largest element of a window takes all of it, as in PyTorch."""
    rank = len(size)
    hit = equal(iota(prod(size), device=x.device), _best(x, size, stride, padding, dilation))
    back = where(hit, reshape(g, (*g.shape, 1)), 0)
    padded = tuple(n + 2 * p for n, p in zip(x.shape[-rank:], padding, strict=True))
    whole = fold(reshape(back, (*g.shape, *size)), padded, stride, dilation)
    lead = (0,) * (len(x.shape) - rank)
    return slice(whole, lead + padding, x.shape, (1,) * len(x.shape))


def _pool_vjp(g: Any, x: Any, size: Shape, stride: Shape, padding: Shape, dilation: Shape) -> tuple[Any, ...]:
    attrs = {"size": size, "stride": stride, "padding": padding, "dilation": dilation}
    return (table.run("max_pool_gradient", (g, x), attrs),)


def _batched_gradient(operands: Sequence[Any], batched: Sequence[bool], **attrs: Any) -> Any:
    return table.run("max_pool_gradient", spread_examples(operands, batched), attrs)


table.add_unlisted(
    Op(
        name="max_pool_gradient",
        family="convolution",
        operands=("g", "x"),
        arguments=lambda g, x, **attrs: ((g, x), attrs),
        infer=lambda specs, **_: specs[1],
        decompose=_pool_gradient,
        batch=_batched_gradient,
        shard=sharding_rules.batched(lambda attrs: len(attrs["size"])),
        dtypes=REAL,
        method=False,
        doc="",
    ),
    "tensorbus",
)
"""The gradient of ``max_pool``: an op, for the devices that have a kernel for it."""

max_pool = table.add(
    Op(
        name="max_pool",
        family="convolution",
        operands=("x",),
        arguments=_pool_arguments,
        infer=_pool_infer,
        decompose=lambda x, size, stride, padding, dilation: table["max"](
            _patches(x, size, stride, padding, dilation), axis=-1
        ),
        vjp=_pool_vjp,
        batch=unchanged("max_pool"),
        shard=sharding_rules.batched(lambda attrs: len(attrs["size"])),
        dtypes=REAL,
        method=False,
        doc="The largest element of each window over the last axes.",
    )
)


def beyond(n: int, k: int, s: int, p: int, d: int) -> int:
    """Return how many elements ``ceil_mode`` adds at the end: the last window must begin before them."""
    count = -(-(n + 2 * p - d * (k - 1) - 1) // s) + 1
    if (count - 1) * s >= n + p:
        count -= 1
    return max((count - 1) * s + d * (k - 1) + 1 - n - 2 * p, 0)


def max_over_windows(
    rank: int, x: Tensor, kernel_size: Lengths, stride: Lengths | None, padding: Lengths, dilation: Lengths,
    ceil_mode: bool, return_indices: bool,
) -> Any:  # fmt: skip
    """Return the largest element of each window over the last ``rank`` axes, and where it is if asked."""
    name = f"max_pool{rank}d"
    size = spread(name, "kernel_size", kernel_size, rank, 1)
    step, edge = default_stride(name, stride, size), at_most_half(name, padding, size)
    reach = spread(name, "dilation", dilation, rank, 1)
    space = x.shape[-rank:]
    if ceil_mode and len(x.shape) > rank:
        more = tuple(map(beyond, space, size, step, edge, reach))
        if any(more):
            lead = (0,) * (len(x.shape) - rank)
            x = pad(x, lead + (0,) * rank, lead + more, lowest(x.dtype))
    out = max_pool(x, size, step, edge, reach, rank=rank)
    if not return_indices:
        return out
    place: Any = _best(x.detach(), size, step, edge, reach)
    place = reshape(place, out.shape)
    flat: Any = 0
    for k in range(rank):
        count = out.shape[len(out.shape) - rank + k]
        first = iota(count, -edge[k], step[k], device=x.device)
        at = place // prod(size[k + 1 :]) % size[k] * reach[k] + reshape(first, (count, *ONES[k + 1 : rank]))
        flat = flat * space[k] + at
    return out, flat


@with_form
def max_pool1d(
    input: Tensor, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
    dilation: Lengths = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Return the largest element of each window over the last axis: see ``max_pool2d``."""
    return max_over_windows(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@with_form
def max_pool2d(
    input: Tensor, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
    dilation: Lengths = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Return the largest element of each window over the last two axes; ``stride`` defaults to the window.

    ``ceil_mode`` lets windows reach beyond the end. ``return_indices`` also returns where the elements are in
    the flattened space, for ``max_unpool2d``. Raises ``ShapeError`` where no window fits.

    >>> import tensorbus as tb
    >>> tb.max_pool2d(tb.asarray([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[4.0]]]
    """
    return max_over_windows(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@with_form
def max_pool3d(
    input: Tensor, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
    dilation: Lengths = 1, ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Return the largest element of each window over the last three axes: see ``max_pool2d``."""
    return max_over_windows(3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
