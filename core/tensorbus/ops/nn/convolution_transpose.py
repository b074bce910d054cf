"""Transposed convolution: the derivative of convolution with respect to its input, as an op of its own.

Inputs are ``(batch, in, *space)``, weights ``(in, out / groups, *kernel)``, as in PyTorch.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ...dtypes.definition import FLOATING, DType
from ...dtypes.promotion import common_dtype, promote
from ...errors import ShapeError
from ..call_errors import with_form
from ..definition import Op, Shape, Spec, table
from ..elementwise.family import fit
from ..elementwise.where_cast import cast
from ..matmul.matmul import matrix_transpose, product
from ..movement.movement import pad, permute_dims, reshape, slice
from ..movement.windows import fold
from . import sharding
from .convolution import Lengths, biased, by_parts, conv, in_batch, spread
from .convolution_weight import conv_weight

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor


def _arguments(
    x: Any, weight: Any, /, stride: Lengths = 1, padding: Lengths = 0, output_padding: Lengths = 0,
    dilation: Lengths = 1, groups: int = 1,
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    name, rank = "conv_transpose", len(weight.shape) - 2
    if rank < 1 or len(x.shape) != rank + 2:
        raise ShapeError(
            f"{name}: an input of shape (batch, channels, *space) and a weight of shape (channels,"
            f" out/groups, *kernel) are needed, got {x.shape} and {weight.shape}."
        )
    return (x, weight), {
        "stride": spread(name, "stride", stride, rank, 1),
        "padding": spread(name, "padding", padding, rank),
        "output_padding": spread(name, "output_padding", output_padding, rank),
        "dilation": spread(name, "dilation", dilation, rank, 1),
        "groups": groups,
    }


def _infer(
    specs: tuple[Spec, ...], *, stride: Shape, padding: Shape, output_padding: Shape, dilation: Shape,
    groups: int,
) -> Spec:  # fmt: skip
    x, w = specs
    if groups < 1 or x.shape[1] != w.shape[0] or w.shape[0] % groups:
        raise ShapeError(
            f"conv_transpose: an input with {x.shape[1]} channels and a weight of shape {w.shape} do not fit"
            f" {groups} group(s); the input needs {w.shape[0]} channels, which the groups must divide."
        )
    if any(o >= max(s, d) for o, s, d in zip(output_padding, stride, dilation, strict=True)):
        raise ShapeError(
            f"conv_transpose: output_padding must be smaller than stride or dilation, got {output_padding}"
            f" for {stride} and {dilation}."
        )
    space = tuple(
        (n - 1) * s + d * (k - 1) + 1 - 2 * p + o
        for n, k, s, p, o, d in zip(
            x.shape[2:], w.shape[2:], stride, padding, output_padding, dilation, strict=True
        )
    )
    if min(space) < 1 or 0 in x.shape[2:]:
        raise ShapeError(
            f"conv_transpose: an input of shape {x.shape} with kernel {w.shape[2:]}, stride {stride} and"
            f" padding {padding} leaves an output of {space}; every length must be >= 1."
        )
    return Spec((x.shape[0], w.shape[1] * groups, *space), x.dtype)


def _decompose(
    x: Any, weight: Any, stride: Shape, padding: Shape, output_padding: Shape, dilation: Shape, groups: int
) -> Any:
    kernel, space = weight.shape[2:], x.shape[2:]
    rank, depth = len(kernel), prod(weight.shape[1:])
    shape = _infer(
        (Spec(x.shape, x.dtype), Spec(weight.shape, x.dtype)), stride=stride, padding=padding,
        output_padding=output_padding, dilation=dilation, groups=groups,
    ).shape  # fmt: skip
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, depth))
    inputs = reshape(x, (x.shape[0], groups, x.shape[1] // groups, prod(space)))
    patches = reshape(product(matrix_transpose(rows), inputs), (x.shape[0], shape[1], *kernel, *space))
    permuted = permute_dims(patches, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    least = tuple(
        (n - 1) * s + d * (k - 1) + 1 for n, k, s, d in zip(space, kernel, stride, dilation, strict=True)
    )
    whole = fold(permuted, least, stride, dilation)
    if any(output_padding):
        whole = pad(whole, (0,) * (rank + 2), (0, 0, *output_padding))
    return slice(whole, (0, 0, *padding), shape, (1,) * (rank + 2))


def _vjp(
    g: Any, x: Any, weight: Any, stride: Shape, padding: Shape, output_padding: Shape, dilation: Shape,
    groups: int, wanted: tuple[bool, bool],
) -> tuple[Any, ...]:  # fmt: skip
    """Both are what convolution of ``g`` by the same weight gives.

    An ``output_padding`` of a stride or more makes room for windows that no element of ``x`` stands for.
    """
    d_x = d_weight = None
    more = (0, 0, *(o // s for o, s in zip(output_padding, stride, strict=True)))
    if wanted[0]:
        d_x = conv(g, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
        d_x = slice(d_x, (0,) * len(more), x.shape, (1,) * len(more)) if any(more) else d_x
    if wanted[1]:
        filled = pad(x, (0,) * len(more), more) if any(more) else x
        d_weight = conv_weight(
            g,
            filled,
            kernel=weight.shape[2:],
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        )
    return d_x, d_weight


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit("conv_transpose", common_dtype(operand_dtypes), FLOATING),) * 2


conv_transpose = table.add(
    Op(
        name="conv_transpose", family="convolution", operands=("x", "weight"), arguments=_arguments,
        infer=_infer, compute=_compute, decompose=_decompose, vjp=_vjp, jvp="multilinear", dtypes=FLOATING,
        autocast="narrow", method=False, shard=sharding.convolution_transpose,
        doc="The transpose of ``conv``: each element of ``x`` adds ``weight`` times itself to a window.",
    )
)  # fmt: skip


def _transposed(
    rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Lengths, padding: Lengths,
    output_padding: Lengths, groups: int, dilation: Lengths,
) -> Tensor:  # fmt: skip
    name = f"conv_transpose{rank}d"
    x, alone = in_batch(name, rank, x, weight)
    settings: dict[str, Any] = {
        "stride": stride, "padding": padding, "output_padding": output_padding, "dilation": dilation,
        "groups": groups,
    }  # fmt: skip
    if x.dtype.is_integer and weight.dtype.is_integer:
        common = promote(x.dtype, weight.dtype)
        operands, attrs = _arguments(x, weight, **settings)
        out = _decompose(cast(operands[0], common), cast(operands[1], common), **attrs)
    else:
        out = by_parts(partial(conv_transpose, **settings), x, weight)
    out = biased(name, out, bias)
    return reshape(out, out.shape[1:]) if alone else out


@with_form
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1, padding: Lengths = 0,
    output_padding: Lengths = 0, groups: int = 1, dilation: Lengths = 1,
) -> Tensor:  # fmt: skip
    """Return the transposed convolution over one axis.

    ``([batch,] in, length)`` with ``(in, out / groups, kernel)``. ``output_padding`` lengthens the result at
    its end. Raises ``ShapeError`` where the shapes do not fit.

    >>> import tensorbus as tb
    >>> tb.nn.functional.conv_transpose1d(tb.asarray([[1.0, 2.0]]), tb.ones((1, 1, 2))).tolist()
    [[1.0, 3.0, 2.0]]
    """
    return _transposed(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


@with_form
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1, padding: Lengths = 0,
    output_padding: Lengths = 0, groups: int = 1, dilation: Lengths = 1,
) -> Tensor:  # fmt: skip
    """Return the transposed convolution over two axes: ``conv_transpose1d`` with one more."""
    return _transposed(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


@with_form
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1, padding: Lengths = 0,
    output_padding: Lengths = 0, groups: int = 1, dilation: Lengths = 1,
) -> Tensor:  # fmt: skip
    """Return the transposed convolution over three axes: ``conv_transpose1d`` with two more."""
    return _transposed(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
