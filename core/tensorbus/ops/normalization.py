"""Normalization over the last axes, and over batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtypes import FLOATING
from ..errors import ShapeError
from .elementwise import common_dtype, fit
from .movement import reshape
from .op import Op, Shape, Spec, table
from .reduction import mean, sum
from .selection import narrowed, widened
from .transcendental import rsqrt

if TYPE_CHECKING:
    from ..tensor import Tensor


def _normalize_arguments(x: Any, /, rank: int, eps: float = 1e-5) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (x,), {"rank": rank, "eps": float(eps)}


def _normalize_infer(specs: tuple[Spec, ...], *, rank: int, eps: float) -> Spec:
    if not 1 <= rank <= len(specs[0].shape):
        raise ShapeError(f"standardize: {rank} axes cannot be normalized in shape {specs[0].shape}.")
    return specs[0]


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


standardize = table.add(
    Op(
        name="standardize",
        family="normalization",
        operands=("x",),
        arguments=_normalize_arguments,
        infer=_normalize_infer,
        compute=lambda given, **_: (fit("standardize", common_dtype(given), FLOATING),),
        decompose=_standardize,
        vjp=_standardize_vjp,
        dtypes=FLOATING,
        doc="``x`` less its mean, over its standard deviation, both over the last ``rank`` axes.",
    )
)


def layer_norm(
    x: Tensor,
    normalized_shape: int | Shape,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return ``x`` standardized over its last axes, times ``weight`` plus ``bias`` (Ba, Kiros, Hinton 2016).

    ``normalized_shape`` is the shape of those axes, and of weight and bias.
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape or x.shape[len(x.shape) - len(shape) :] != shape:
        raise ShapeError(
            f"layer_norm: the last axes of shape {x.shape} are not the normalized shape {shape}."
        )
    out = standardize(x, len(shape), eps)
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.shape != shape:
            raise ShapeError(f"layer_norm: the {name} needs shape {shape}, got {parameter.shape}.")
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def batch_statistics(x: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return the mean and the (uncorrected) variance of each channel of ``(batch, channels, *space)``."""
    axes = (0, *range(2, len(x.shape)))
    count = 1
    for a in axes:
        count *= x.shape[a]
    average = mean(x, axis=axes, keepdims=True)
    centred = x - average
    variance = sum(centred * centred, axis=axes) * (1 / count if count else float("nan"))
    return reshape(average, (x.shape[1],)), variance, count


def batch_norm(
    x: Tensor, mean: Tensor, variance: Tensor, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Return ``x`` of shape ``(batch, channels, *space)`` normalized by given statistics of its channels."""
    shape = (1, x.shape[1], *(1,) * (len(x.shape) - 2))
    scale = rsqrt(variance + eps)
    if weight is not None:
        scale = scale * weight
    out = (x - reshape(mean, shape)) * reshape(scale, shape)
    return out if bias is None else out + reshape(bias, shape)
