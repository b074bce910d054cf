"""Windows over the last axes as a view, and their sum back."""

from __future__ import annotations

from math import prod
from typing import Any

from ...errors import ShapeError
from .. import sharding_rules
from ..batching_rules import unchanged
from ..definition import Op, Shape, Spec, ViewRule, table
from .family import movement
from .movement import reshape, slice, slice_update


def _windows_infer(specs: tuple[Spec, ...], *, size: Shape, stride: Shape, dilation: Shape) -> Spec:
    shape, rank = specs[0].shape, len(size)
    if not len(stride) == len(dilation) == rank <= len(shape) or min((*size, *stride, *dilation, 1)) < 1:
        raise ShapeError(
            f"windows: size {size}, stride {stride}, dilation {dilation} do not suit shape {shape}."
        )
    lead = shape[: len(shape) - rank]
    counts = []
    for n, k, s, d in zip(shape[len(lead) :], size, stride, dilation, strict=True):
        if n < d * (k - 1) + 1:
            raise ShapeError(
                f"windows: a window of {size} with dilation {dilation} is larger than shape {shape}."
            )
        counts.append((n - d * (k - 1) - 1) // s + 1)
    return Spec((*lead, *counts, *size), specs[0].dtype)


def _windows_put(base: Any, value: Any, own: Shape, /, **attrs: Any) -> Any:
    """Return the base with what the windows show, each element from any of those that have it."""
    count = prod(own)
    places = windows(reshape(table["iota"](count, device=value.device), own), **attrs)
    line = table["scatter"](reshape(base, (count,)), reshape(value, (-1,)), reshape(places, (-1,)))
    return reshape(line, own)


windows: Op[...] = movement(
    "windows",
    arguments=lambda x, /, size, stride, dilation: (
        (x,), {"size": tuple(size), "stride": tuple(stride), "dilation": tuple(dilation)}
    ),
    infer=_windows_infer,
    vjp=lambda g, x_shape, size, stride, dilation: (
        fold(g, x_shape[len(x_shape) - len(size) :], stride, dilation),
    ),
    batch=unchanged("windows"),
    shard=sharding_rules.windows(1),
    view=ViewRule(
        put=_windows_put,
        refuses="windows may overlap, so that one element shows at several places",
        refuses_all=True,
    ),
    doc="All windows over the last ``len(size)`` axes: shape ``lead + counts + size``.",
)  # fmt: skip


def _fold_infer(specs: tuple[Spec, ...], *, shape: Shape, stride: Shape, dilation: Shape) -> Spec:
    rank = len(shape)
    own_shape = specs[0].shape
    lead, size = own_shape[: len(own_shape) - 2 * rank], own_shape[len(own_shape) - rank :]
    whole = Spec((*lead, *shape), specs[0].dtype)
    if _windows_infer((whole,), size=size, stride=stride, dilation=dilation).shape != own_shape:
        raise ShapeError(f"fold: windows of shape {own_shape} do not come from shape {shape}.")
    return whole


def _fold(x: Any, shape: Shape, stride: Shape, dilation: Shape) -> Any:
    """Sum the windows place by place: one strided box for each element of a window."""
    rank = len(shape)
    lead, counts, size = x.shape[: -2 * rank], x.shape[-2 * rank : -rank], x.shape[-rank:]
    total = zeros = table["full"]((*lead, *shape), 0, dtype=x.dtype, device=x.device)
    for place in range(prod(size)):
        at = tuple(place // prod(size[k + 1 :]) % size[k] for k in range(rank))
        start = (0,) * (len(lead) + rank) + at
        box = reshape(slice(x, start, (*lead, *counts, *(1,) * rank), (1,) * len(start)), (*lead, *counts))
        corner = (0,) * len(lead) + tuple(a * d for a, d in zip(at, dilation, strict=True))
        total = total + slice_update(zeros, box, corner, (1,) * len(lead) + stride)
    return total


fold: Op[...] = movement(
    "fold",
    arguments=lambda x, /, shape, stride, dilation: (
        (x,), {"shape": tuple(shape), "stride": tuple(stride), "dilation": tuple(dilation)}
    ),
    infer=_fold_infer,
    decompose=_fold,
    vjp=lambda g, x_shape, shape, stride, dilation: (
        windows(g, x_shape[len(x_shape) - len(shape) :], stride, dilation),
    ),
    batch=unchanged("fold"),
    shard=sharding_rules.windows(2),
    doc="The reverse of ``windows``: overlapping windows add up. ``shape`` is that of the last axes.",
)  # fmt: skip
