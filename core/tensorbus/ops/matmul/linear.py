"""Affine maps of the last axis. Names, arguments and values are PyTorch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import ShapeError
from ...tracing.autocast_state import autocast_dtype
from ..call_errors import with_form
from ..elementwise.where_cast import cast
from ..movement.movement import permute_dims, reshape
from ..reduction.reduction import sum
from .matmul import matmul

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def beside(out: Tensor, bias: Tensor) -> Tensor:
    """Return ``bias`` as it is added to a product: in its dtype, where ``autocast`` has made that narrow."""
    if autocast_dtype.get() is None or bias.dtype.itemsize <= out.dtype.itemsize:
        return bias
    return cast(bias, out.dtype)


@with_form
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``input @ weight.T + bias``: ``(*, in)`` with ``(out, in)`` and ``(out,)`` gives ``(*, out)``.

    A ``weight`` of shape ``(in,)`` gives ``(*,)``. Raises ``ShapeError`` where they do not fit.

    >>> import tensorbus as tb
    >>> tb.nn.functional.linear(tb.asarray([[1.0, 2.0]]), tb.asarray([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    if len(weight.shape) not in (1, 2) or not input.shape or input.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"linear: an input of shape {input.shape} and a weight of shape {weight.shape} do not fit; the"
            f" input's last axis must be as long as the weight's second."
        )
    out = matmul(input, permute_dims(weight, (1, 0)) if len(weight.shape) == 2 else weight)
    if bias is None:
        return out
    if bias.shape != weight.shape[:-1]:
        raise ShapeError(f"linear: a bias of shape {weight.shape[:-1]} is needed, got {bias.shape}.")
    return out + beside(out, bias)


@with_form
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``input1 @ weight[k] @ input2 + bias[k]`` for each output ``k``, over the last axes.

    ``(*, in1)`` and ``(*, in2)`` with ``(out, in1, in2)`` give ``(*, out)``. Raises ``ShapeError`` where they
    do not fit.
    """
    if (
        len(weight.shape) != 3 or not input1.shape or input1.shape[:-1] != input2.shape[:-1]
        or (input1.shape[-1], input2.shape[-1]) != weight.shape[1:]
    ):  # fmt: skip
        raise ShapeError(
            f"bilinear: inputs of shapes {input1.shape} and {input2.shape} do not fit a weight of shape"
            f" {weight.shape}, which is (out, in1, in2)."
        )
    count, first, second = weight.shape
    flat = reshape(permute_dims(weight, (1, 0, 2)), (first, count * second))
    half = reshape(matmul(input1, flat), (*input1.shape[:-1], count, second))
    out = sum(half * reshape(input2, (*input2.shape[:-1], 1, second)), axis=-1)
    if bias is None:
        return out
    if bias.shape != (count,):
        raise ShapeError(f"bilinear: a bias of shape ({count},) is needed, got {bias.shape}.")
    return out + beside(out, bias)
