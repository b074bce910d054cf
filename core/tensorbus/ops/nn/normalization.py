"""Normalization of each example by itself: over its last axes, its groups of channels, its neighbours.

Names, arguments and values are PyTorch's. What normalizes over batches is in ``batch_norm``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, Final

from ...dtypes import definition as dt
from ...dtypes.definition import FLOATING
from ...dtypes.promotion import common_dtype
from ...errors import ArgumentError, ShapeError
from .. import sharding_rules
from ..batching_rules import unchanged
from ..call_errors import with_form
from ..definition import Op, Shape, Spec, table
from ..elementwise.family import fit
from ..elementwise.transcendental import power, rsqrt
from ..elementwise.where_cast import narrowed, widened
from ..fused_function import fuse_in_eager
from ..movement.family import as_shape
from ..movement.movement import pad, reshape
from ..movement.windows import windows
from ..reduction.reduction import mean

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def _normalize_arguments(x: Any, /, rank: int, eps: float = 1e-5) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (x,), {"rank": rank, "eps": float(eps)}


def _normalizer(
    name: str, *, decompose: Callable[..., Any], vjp: Callable[..., tuple[Any, ...]], doc: str
) -> Op[...]:
    """Define an op that scales ``x`` by a statistic of its last ``rank`` axes."""

    def infer(specs: tuple[Spec, ...], *, rank: int, eps: float) -> Spec:
        if not 1 <= rank <= len(specs[0].shape):
            raise ShapeError(f"{name}: {rank} axes cannot be normalized in shape {specs[0].shape}.")
        return specs[0]

    return table.add(
        Op(
            name=name, family="normalization", operands=("x",), arguments=_normalize_arguments, infer=infer,
            compute=lambda operand_dtypes, **_: (fit(name, common_dtype(operand_dtypes), FLOATING),),
            decompose=decompose, vjp=vjp, batch=unchanged(name),
            shard=sharding_rules.batched(lambda attrs: attrs["rank"], reduces=True), dtypes=FLOATING,
            method=False, doc=doc,
        )
    )  # fmt: skip


def _standardize(x: Any, rank: int, eps: float) -> Any:
    axes = tuple(range(-rank, 0))
    wide = widened(x)
    centred = wide - mean(wide, axis=axes, keepdims=True)
    return narrowed(centred * rsqrt(mean(centred * centred, axis=axes, keepdims=True) + eps), x.dtype)


def _standardize_vjp(g: Any, x: Any, rank: int, eps: float) -> tuple[Any, ...]:
    axes = tuple(range(-rank, 0))
    x, g = widened(x), widened(g)
    centred = x - mean(x, axis=axes, keepdims=True)
    scale = rsqrt(mean(centred * centred, axis=axes, keepdims=True) + eps)
    out = centred * scale
    return (scale * (g - mean(g, axis=axes, keepdims=True) - out * mean(g * out, axis=axes, keepdims=True)),)


standardize = _normalizer(
    "standardize", decompose=_standardize, vjp=_standardize_vjp,
    doc="``x`` less its mean, over its standard deviation, both over the last ``rank`` axes.",
)  # fmt: skip


def _to_unit(x: Any, rank: int, eps: float) -> Any:
    wide = widened(x)
    return narrowed(
        wide * rsqrt(mean(wide * wide, axis=tuple(range(-rank, 0)), keepdims=True) + eps), x.dtype
    )


def _to_unit_vjp(g: Any, x: Any, rank: int, eps: float) -> tuple[Any, ...]:
    axes = tuple(range(-rank, 0))
    x, g = widened(x), widened(g)
    scale = rsqrt(mean(x * x, axis=axes, keepdims=True) + eps)
    out = x * scale
    return (scale * (g - out * mean(g * out, axis=axes, keepdims=True)),)


to_unit_rms = _normalizer(
    "to_unit_rms", decompose=_to_unit, vjp=_to_unit_vjp,
    doc="``x`` over the root of the mean of its squares over the last ``rank`` axes.",
)  # fmt: skip

_EPSILON: Final = {dt.float64: 2.0**-52}


@with_form
@fuse_in_eager
def layer_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Return ``input`` standardized over its last axes, times ``weight`` plus ``bias`` (Ba et al. 2016).

    ``normalized_shape`` is the shape of those axes, and of weight and bias. Raises ``ShapeError`` otherwise.

    >>> import tensorbus as tb
    >>> tb.layer_norm(tb.asarray([[-1.0, 1.0]]), 2, eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    shape = _last_axes("layer_norm", input, normalized_shape, weight=weight, bias=bias)
    out = standardize(input, len(shape), eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


@with_form
@fuse_in_eager
def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:  # fmt: skip
    """Return ``input`` over the root of its mean square, times ``weight`` (Zhang and Sennrich 2019).

    ``normalized_shape`` is the shape of the last axes, over which the mean goes, and of ``weight``. ``eps``
    is that of the dtype computed in where it is None. Raises ``ShapeError`` otherwise.
    """
    shape = _last_axes("rms_norm", input, normalized_shape, weight=weight)
    floor = _EPSILON.get(input.dtype, 2.0**-23) if eps is None else eps
    if input.dtype.is_complex:
        floor = _EPSILON.get(dt.real_of(input.dtype), 2.0**-23) if eps is None else eps
        out = input * rsqrt(mean(input * input, axis=tuple(range(-len(shape), 0)), keepdims=True) + floor)
    else:
        out = to_unit_rms(input, len(shape), floor)
    return out if weight is None else out * weight


def _last_axes(
    name: str, x: Tensor, normalized_shape: int | Sequence[int], **parameters: Tensor | None
) -> Shape:
    shape = as_shape(name, normalized_shape)
    if not shape or x.shape[len(x.shape) - len(shape) :] != shape:
        raise ShapeError(f"{name}: the last axes of shape {x.shape} are not the normalized shape {shape}.")
    for role, parameter in parameters.items():
        if parameter is not None and parameter.shape != shape:
            raise ShapeError(f"{name}: the {role} needs shape {shape}, got {parameter.shape}.")
    return shape


@with_form
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Return ``(batch, channels, *space)`` standardized over groups of channels (Wu and He 2018).

    ``weight`` and ``bias`` are ``(channels,)``. Raises ``ShapeError`` where the groups do not divide them.
    """
    if len(input.shape) < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ShapeError(
            f"group_norm: (batch, channels, *space) with channels that {num_groups} group(s) divide is"
            f" needed, got shape {input.shape}."
        )
    _check_channels("group_norm", input, weight, bias)
    batch, channels, *space = input.shape
    rows = reshape(input, (batch, num_groups, channels // num_groups, prod(space)))
    return reshape(_by_group(rows, weight, bias, eps), input.shape)


@fuse_in_eager
def _by_group(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Return ``(batch, groups, channels, size)`` standardized, and scaled as it was walked."""
    return _scaled(standardize(x, 2, eps), (*x.shape[1:3], 1), weight, bias)


@fuse_in_eager
def by_channel(x: Tensor, name: str, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return ``x`` of shape ``(batch, channels, *space)`` times a weight, plus a bias, of ``(channels,)``."""
    _check_channels(name, x, weight, bias)
    return _scaled(x, (x.shape[1], *(1,) * (len(x.shape) - 2)), weight, bias)


def _scaled(x: Tensor, row: Shape, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = x if weight is None else x * reshape(weight, row)
    return out if bias is None else out + reshape(bias, row)


def _check_channels(name: str, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    channels = x.shape[1]
    for role, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != (channels,):
            raise ShapeError(
                f"{name}: the {role} has {channels} elements for an input of shape {x.shape}, got shape"
                f" {parameter.shape}."
            )


@with_form
@fuse_in_eager
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Return each channel damped by ``size`` neighbouring ones (Krizhevsky, Sutskever, Hinton 2012).

    ``(batch, channels, *space)`` over ``(k + alpha * mean of squares) ** beta``. Raises ``ShapeError`` for
    fewer than 3 dimensions, ``ArgumentError`` for ``size`` below 1.
    """
    if len(input.shape) < 3:
        raise ShapeError(f"local_response_norm: at least 3 dimensions are needed, got shape {input.shape}.")
    try:
        neighbours = index(size)
    except (TypeError, ValueError):
        neighbours = 0
    if neighbours < 1:
        raise ArgumentError(f"local_response_norm: size must be an integer >= 1, got {size!r}.")
    batch, channels, *space = input.shape
    rest = prod(space)
    squares = reshape(input * input, (batch, channels, rest))
    padded = pad(squares, (0, neighbours // 2, 0), (0, (neighbours - 1) // 2, 0))
    around = mean(windows(padded, (neighbours, 1), (1, 1), (1, 1)), axis=(-2, -1))
    return input / power(reshape(around, input.shape) * alpha + k, beta)
