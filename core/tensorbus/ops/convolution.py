"""Convolution and pooling over windows, for any number of spatial axes.

Inputs are ``(batch, channels, *space)``, weights ``(out, channels / groups, *kernel)``, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ..dtypes import FLOATING, REAL, DType, float8_e4m3fn, integer_range
from ..errors import ShapeError
from .comparison import equal
from .creation import iota
from .elementwise import common_dtype, fit
from .matmul import _product as product
from .matmul import matrix_transpose
from .movement import fold, pad, permute_dims, reshape, slice, windows
from .op import Op, Shape, Spec, table
from .reduction import argmax, mean, sum
from .selection import where

if TYPE_CHECKING:
    from ..tensor import Tensor

Lengths = int | Sequence[int]


def spread(name: str, what: str, value: Lengths, rank: int, least: int = 0) -> Shape:
    """Return one integer for each spatial axis. Raises ``ShapeError`` for a wrong number or size of them."""
    given: tuple[Any, ...] = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(given) != rank or not all(isinstance(n, int) and n >= least for n in given):
        raise ShapeError(f"{name}: {what} must be an integer >= {least}, or {rank} of them, got {value!r}.")
    return given


def _conv_arguments(
    x: Any, weight: Any, /, stride: Lengths = 1, padding: Lengths = 0, dilation: Lengths = 1, groups: int = 1
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    rank = len(weight.shape) - 2
    if rank < 1 or len(x.shape) != rank + 2:
        raise ShapeError(
            "conv: an input of shape (batch, channels, *space) and a weight of shape (out,"
            " channels/groups, *kernel)"
            f" are needed, got {x.shape} and {weight.shape}."
        )
    return (x, weight), {
        "stride": spread("conv", "stride", stride, rank, 1),
        "padding": spread("conv", "padding", padding, rank),
        "dilation": spread("conv", "dilation", dilation, rank, 1),
        "groups": groups,
    }


def _conv_infer(
    specs: tuple[Spec, ...], *, stride: Shape, padding: Shape, dilation: Shape, groups: int
) -> Spec:
    x, w = specs
    if groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ShapeError(
            f"conv: an input with {x.shape[1]} channels and a weight of shape {w.shape} do not fit"
            f" {groups} group(s);"
            f" the input needs {w.shape[1] * groups} channels and the groups must divide {w.shape[0]}."
        )
    space = []
    for n, k, s, p, d in zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=True):
        if k < 1 or n + 2 * p < d * (k - 1) + 1:
            raise ShapeError(
                f"conv: a kernel of {w.shape[2:]} does not fit an input of {x.shape[2:]} padded by {padding}."
            )
        space.append((n + 2 * p - d * (k - 1) - 1) // s + 1)
    return Spec((x.shape[0], w.shape[0], *space), x.dtype)


def _compute(given: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit("conv", common_dtype(given), FLOATING),) * 2


def _columns(x: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, groups: int) -> Any:
    """Return all patches as columns: ``(batch, groups, channels/groups * kernel, places)``."""
    rank = len(kernel)
    if any(padding):
        x = pad(x, (0, 0, *padding), (0, 0, *padding))
    patches = windows(x, kernel, stride, dilation)
    batch, channels, *counts = patches.shape[: 2 + rank]
    turned = permute_dims(patches, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    places, depth = 1, channels // groups
    for n in counts:
        places *= n
    for n in kernel:
        depth *= n
    return reshape(turned, (batch, groups, depth, places))


def _conv(x: Any, weight: Any, stride: Shape, padding: Shape, dilation: Shape, groups: int) -> Any:
    kernel = weight.shape[2:]
    shape = _conv_infer(
        (Spec(x.shape, x.dtype), Spec(weight.shape, x.dtype)),
        stride=stride, padding=padding, dilation=dilation, groups=groups,
    ).shape  # fmt: skip
    columns = _columns(x, kernel, stride, padding, dilation, groups)
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, columns.shape[2]))
    return reshape(product(rows, columns), shape)


def _conv_vjp(
    g: Any, x: Any, weight: Any, stride: Shape, padding: Shape, dilation: Shape, groups: int,
    wanted: tuple[bool, bool],
) -> tuple[Any, ...]:  # fmt: skip
    kernel = weight.shape[2:]
    rank = len(kernel)
    per_group, depth = weight.shape[0] // groups, prod(weight.shape[1:])
    grads = reshape(g, (g.shape[0], groups, per_group, prod(g.shape[2:])))
    d_x = d_weight = None
    if wanted[1]:
        columns = _columns(x, kernel, stride, padding, dilation, groups)
        d_weight = reshape(sum(product(grads, matrix_transpose(columns)), axis=0), weight.shape)
    if wanted[0]:
        rows = reshape(weight, (1, groups, per_group, depth))
        patches = reshape(
            product(matrix_transpose(rows), grads), (g.shape[0], x.shape[1], *kernel, *g.shape[2:])
        )
        turned = permute_dims(patches, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
        padded = tuple(n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True))
        whole = fold(turned, padded, stride, dilation)
        d_x = slice(whole, (0, 0, *padding), x.shape, (1,) * (rank + 2))
    return d_x, d_weight


conv = table.add(
    Op(
        name="conv",
        family="convolution",
        operands=("x", "weight"),
        arguments=_conv_arguments,
        infer=_conv_infer,
        compute=_compute,
        decompose=_conv,
        vjp=_conv_vjp,
        dtypes=FLOATING,
        doc="The cross-correlation of ``x`` with ``weight`` over their spatial axes.",
    )
)


def _conv_of(name: str, rank: int) -> Any:
    def convolve(
        x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1, padding: Lengths = 0,
        dilation: Lengths = 1, groups: int = 1,
    ) -> Tensor:  # fmt: skip
        if len(weight.shape) != rank + 2 or len(x.shape) != rank + 2:
            raise ShapeError(
                f"{name}: {rank + 2} dimensions are needed for the input and the weight, got shapes"
                f" {x.shape} and {weight.shape}."
            )
        out = conv(x, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
        if bias is None:
            return out
        if bias.shape != (weight.shape[0],):
            raise ShapeError(f"{name}: a bias of shape ({weight.shape[0]},) is needed, got {bias.shape}.")
        return out + reshape(bias, (1, weight.shape[0], *(1,) * rank))

    convolve.__name__ = convolve.__qualname__ = name
    convolve.__doc__ = f"""Return the {rank}-d convolution of ``x`` with ``weight``, plus ``bias`` per output
    channel.

    Shapes are ``(batch, channels, *space)`` and ``(out, channels / groups, *kernel)``; stride, padding and
    dilation are integers or one for each spatial axis. Raises ``ShapeError`` where they do not fit."""
    return convolve


conv1d = _conv_of("conv1d", 1)
conv2d = _conv_of("conv2d", 2)
conv3d = _conv_of("conv3d", 3)


def _pool_arguments(
    x: Any, /, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0,
    dilation: Lengths = 1, *, rank: int = 2,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    size = spread("max_pool", "kernel_size", kernel_size, rank, 1)
    given = spread("max_pool", "padding", padding, rank)
    if any(2 * p > k for p, k in zip(given, size, strict=True)):
        raise ShapeError(f"max_pool: padding {given} must be at most half of the kernel size {size}.")
    return (x,), {
        "size": size,
        "stride": size if stride is None else spread("max_pool", "stride", stride, rank, 1),
        "padding": given,
        "dilation": spread("max_pool", "dilation", dilation, rank, 1),
    }


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


def _lowest(dtype: DType) -> float | int:
    if dtype is float8_e4m3fn:  # has no infinities
        return -448.0
    return integer_range(dtype)[0] if dtype.is_integer else float("-inf")


def _patches(x: Any, size: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Any:
    lead = (0,) * (len(x.shape) - len(size))
    if any(padding):
        x = pad(x, lead + padding, lead + padding, _lowest(x.dtype))
    found = windows(x, size, stride, dilation)
    area = 1
    for n in size:
        area *= n
    return reshape(found, (*found.shape[: len(found.shape) - len(size)], area))


def _pool_vjp(g: Any, x: Any, size: Shape, stride: Shape, padding: Shape, dilation: Shape) -> tuple[Any, ...]:
    """The first largest element of a window takes the whole gradient, as in PyTorch."""
    rank = len(size)
    patches = _patches(x, size, stride, padding, dilation)
    best = argmax(patches, axis=-1, keepdims=True)
    hit = equal(iota(patches.shape[-1], device=x.device), best)
    back = where(hit, reshape(g, (*g.shape, 1)), 0)
    padded = tuple(n + 2 * p for n, p in zip(x.shape[-rank:], padding, strict=True))
    whole = fold(reshape(back, (*g.shape, *size)), padded, stride, dilation)
    lead = (0,) * (len(x.shape) - rank)
    return (slice(whole, lead + padding, x.shape, (1,) * len(x.shape)),)


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
        dtypes=REAL,
        doc="The largest element of each window over the last axes.",
    )
)


def max_pool2d(
    x: Tensor,
    kernel_size: Lengths,
    stride: Lengths | None = None,
    padding: Lengths = 0,
    dilation: Lengths = 1,
) -> Tensor:
    """Return the largest element of each window over the last two axes; ``stride`` defaults to the window.

    >>> import tensorbus as tb
    >>> tb.max_pool2d(tb.asarray([[[1.0, 2.0], [3.0, 4.0]]]), 2).tolist()
    [[[4.0]]]
    """
    return max_pool(x, kernel_size, stride, padding, dilation, rank=2)


def avg_pool2d(
    x: Tensor, kernel_size: Lengths, stride: Lengths | None = None, padding: Lengths = 0
) -> Tensor:
    """Return the mean of each window over the last two axes; padding counts as zeros."""
    size = spread("avg_pool2d", "kernel_size", kernel_size, 2, 1)
    step = size if stride is None else spread("avg_pool2d", "stride", stride, 2, 1)
    edge = spread("avg_pool2d", "padding", padding, 2)
    lead = (0,) * (len(x.shape) - 2)
    padded = pad(x, lead + edge, lead + edge) if any(edge) else x
    return mean(windows(padded, size, step, (1, 1)), axis=(-2, -1))
