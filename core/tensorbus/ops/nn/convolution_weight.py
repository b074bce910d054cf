"""The derivative of convolution with respect to its weight, as an op: devices may do better than patches.

Inputs are ``(batch, channels, *space)``, gradients ``(batch, out, *places)``; the result has the shape of a
weight, ``(out, channels / groups, *kernel)``.
"""

from __future__ import annotations

from typing import Any

from ...dtypes.definition import FLOATING, DType
from ...dtypes.promotion import common_dtype
from ...errors import ShapeError
from ..definition import Op, Shape, Spec, table
from ..elementwise.family import fit
from ..matmul.matmul import matrix_transpose, product
from ..movement.movement import reshape
from ..reduction.reduction import sum
from . import sharding
from .convolution import Lengths, columns_of, conv, conv_infer, input_gradient, spread


def _arguments(
    x: Any, grad: Any, /, kernel: Lengths, stride: Lengths = 1, padding: Lengths = 0, dilation: Lengths = 1,
    groups: int = 1,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    name, rank = "conv_weight", len(x.shape) - 2
    if rank < 1 or len(grad.shape) != rank + 2:
        raise ShapeError(
            f"{name}: an input of shape (batch, channels, *space) and a gradient of shape (batch, out,"
            f" *places) are needed, got {x.shape} and {grad.shape}."
        )
    return (x, grad), {
        "kernel": spread(name, "kernel", kernel, rank, 1),
        "stride": spread(name, "stride", stride, rank, 1),
        "padding": spread(name, "padding", padding, rank),
        "dilation": spread(name, "dilation", dilation, rank, 1),
        "groups": groups,
    }


def _infer(specs: tuple[Spec, ...], *, kernel: Shape, groups: int, **attrs: Shape) -> Spec:
    x, grad = specs
    weight = Spec((grad.shape[1], x.shape[1] // max(groups, 1), *kernel), x.dtype)
    fitting = conv_infer((x, weight), groups=groups, **attrs).shape
    if fitting != grad.shape:
        raise ShapeError(
            f"conv_weight: an input of shape {x.shape} and a kernel of {kernel} need a gradient of shape"
            f" {fitting}, got {grad.shape}."
        )
    return weight


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit("conv_weight", common_dtype(operand_dtypes), FLOATING),) * 2


def _decompose(
    x: Any, grad: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, groups: int
) -> Any:
    columns = columns_of(x, kernel, stride, padding, dilation, groups)
    rows = reshape(grad, (grad.shape[0], groups, grad.shape[1] // groups, columns.shape[3]))
    summed = sum(product(rows, matrix_transpose(columns)), axis=0)
    return reshape(summed, (grad.shape[1], x.shape[1] // groups, *kernel))


def _vjp(
    g: Any, x: Any, grad: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, groups: int,
    wanted: tuple[bool, bool],
) -> tuple[Any, ...]:  # fmt: skip
    """``g`` is a weight's: what it gives by convolution is the gradient of the gradient."""
    attrs: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return (
        input_gradient(grad, g, x.shape, **attrs) if wanted[0] else None,
        conv(x, g, **attrs) if wanted[1] else None,
    )


conv_weight = table.add(
    Op(
        name="conv_weight", family="convolution", operands=("x", "grad"), arguments=_arguments, infer=_infer,
        compute=_compute, decompose=_decompose, vjp=_vjp, jvp="multilinear", dtypes=FLOATING,
        autocast="narrow", method=False, shard=sharding.convolution_weight,
        doc="The gradient of ``conv`` with respect to its weight, from its input and the result's gradient.",
    )
)  # fmt: skip
