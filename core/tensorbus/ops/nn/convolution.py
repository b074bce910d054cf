"""Convolution, for any number of spatial axes.

Inputs are ``(batch, channels, *space)``, weights ``(out, channels / groups, *kernel)``, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...dtypes.definition import FLOATING, DType
from ...dtypes.promotion import common_dtype, promote
from ...errors import ArgumentError, ShapeError
from ..batching_rules import convolved
from ..call_errors import with_form
from ..definition import Op, Shape, Spec, table
from ..elementwise.arithmetic import complex as from_parts
from ..elementwise.arithmetic import imag, real
from ..elementwise.family import fit
from ..elementwise.where_cast import cast
from ..matmul.linear import beside
from ..matmul.matmul import product
from ..movement.movement import pad, permute_dims, reshape
from ..movement.windows import windows
from . import sharding

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

Lengths = int | Sequence[int]
_INTEGERS: Final = {int}


def spread(name: str, what: str, value: Lengths, rank: int, least: int = 0) -> Shape:
    """Return one integer for each spatial axis. Raises ``ShapeError`` for a wrong number or size of them."""
    if (
        type(value) is tuple
        and len(value) == rank
        and {*map(type, value)} == _INTEGERS
        and min(value) >= least
    ):
        return value
    lengths: tuple[Any, ...] = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    lengths *= rank if len(lengths) == 1 else 1
    if len(lengths) != rank or not all(isinstance(n, int) and n >= least for n in lengths):
        raise ShapeError(f"{name}: {what} must be an integer >= {least}, or {rank} of them, got {value!r}.")
    return lengths


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


def conv_infer(
    specs: tuple[Spec, ...], *, stride: Shape, padding: Shape, dilation: Shape, groups: int
) -> Spec:
    """Return the result's shape and dtype. Raises ``ShapeError`` where input and weight do not fit."""
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


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit("conv", common_dtype(operand_dtypes), FLOATING),) * 2


def columns_of(x: Any, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, groups: int) -> Any:
    """Return all patches as columns: ``(batch, groups, channels/groups * kernel, places)``."""
    rank = len(kernel)
    if any(padding):
        x = pad(x, (0, 0, *padding), (0, 0, *padding))
    patches = windows(x, kernel, stride, dilation)
    batch, channels, *counts = patches.shape[: 2 + rank]
    permuted = permute_dims(patches, (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    places, depth = 1, channels // groups
    for n in counts:
        places *= n
    for n in kernel:
        depth *= n
    return reshape(permuted, (batch, groups, depth, places))


def _conv(x: Any, weight: Any, stride: Shape, padding: Shape, dilation: Shape, groups: int) -> Any:
    kernel = weight.shape[2:]
    shape = conv_infer(
        (Spec(x.shape, x.dtype), Spec(weight.shape, x.dtype)),
        stride=stride, padding=padding, dilation=dilation, groups=groups,
    ).shape  # fmt: skip
    columns = columns_of(x, kernel, stride, padding, dilation, groups)
    rows = reshape(weight, (1, groups, weight.shape[0] // groups, columns.shape[2]))
    return reshape(product(rows, columns), shape)


def input_gradient(
    g: Any, weight: Any, shape: Shape, stride: Shape, padding: Shape, dilation: Shape, groups: int
) -> Any:
    """Return the gradient of an input of ``shape``, from that of the result."""
    from .convolution_transpose import conv_transpose

    rest = tuple(
        n - ((m - 1) * s + d * (k - 1) + 1 - 2 * p)
        for n, m, k, s, p, d in zip(
            shape[2:], g.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
    )
    attrs = {
        "stride": stride, "padding": padding, "output_padding": rest, "dilation": dilation, "groups": groups
    }  # fmt: skip
    return table.run(conv_transpose.name, (g, weight), attrs)


def _conv_vjp(
    g: Any, x: Any, weight: Any, stride: Shape, padding: Shape, dilation: Shape, groups: int,
    wanted: tuple[bool, bool],
) -> tuple[Any, ...]:  # fmt: skip
    from .convolution_weight import conv_weight

    attrs: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return (
        input_gradient(g, weight, x.shape, **attrs) if wanted[0] else None,
        table.run(conv_weight.name, (x, g), {"kernel": weight.shape[2:], **attrs}) if wanted[1] else None,
    )


conv = table.add(
    Op(
        name="conv",
        family="convolution",
        operands=("x", "weight"),
        arguments=_conv_arguments,
        infer=conv_infer,
        compute=_compute,
        decompose=_conv,
        vjp=_conv_vjp,
        jvp="multilinear",
        batch=convolved,
        shard=sharding.convolution,
        dtypes=FLOATING,
        autocast="narrow",
        method=False,
        doc="The cross-correlation of ``x`` with ``weight`` over their spatial axes.",
    )
)


def by_parts(run: Callable[[Any, Any], Any], x: Any, weight: Any) -> Any:
    """Run what is linear in both operands on their real and imaginary parts, where they have such.

    >>> by_parts(lambda x, y: x * y, table.function("full")((), 2.0), table.function("full")((), 3j)).item()
    6j
    """
    if not (x.dtype.is_complex or weight.dtype.is_complex):
        return run(x, weight)
    across = run(real(x), real(weight))
    if x.dtype.is_complex and weight.dtype.is_complex:
        across = across - run(imag(x), imag(weight))
        up = run(real(x), imag(weight)) + run(imag(x), real(weight))
    else:
        up = run(imag(x), weight) if x.dtype.is_complex else run(x, imag(weight))
    return from_parts(across, up)


def _of_any_dtype(
    x: Any, weight: Any, stride: Lengths, padding: Lengths, dilation: Lengths, groups: int
) -> Any:
    """Return the convolution: of integers as integers, of complex numbers by their parts."""
    dtypes = x.dtype, weight.dtype
    if dtypes[0] in FLOATING and dtypes[1] in FLOATING:
        return conv.function(x, weight, stride, padding, dilation, groups)
    if x.dtype.is_integer and weight.dtype.is_integer:
        common = promote(x.dtype, weight.dtype)
        operands, attrs = _conv_arguments(x, weight, stride, padding, dilation, groups)
        return _conv(cast(operands[0], common), cast(operands[1], common), **attrs)
    run = partial(conv, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return by_parts(run, x, weight)


def _convolution(
    rank: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Lengths, padding: Lengths | str,
    dilation: Lengths, groups: int,
) -> Tensor:  # fmt: skip
    name = f"conv{rank}d"
    x, alone = in_batch(name, rank, x, weight)
    if isinstance(padding, str):
        x, padding = _padded(name, rank, x, weight, stride, padding, dilation)
    out = _of_any_dtype(x, weight, stride, padding, dilation, groups)
    out = biased(name, out, bias)
    return reshape(out, out.shape[1:]) if alone else out


def in_batch(name: str, rank: int, x: Tensor, weight: Tensor) -> tuple[Tensor, bool]:
    """Return an input with a batch, and whether it had none. Raises ``ShapeError`` for other ranks."""
    if len(weight.shape) != rank + 2 or len(x.shape) not in (rank + 1, rank + 2):
        raise ShapeError(
            f"{name}: an input of {rank + 2} dimensions (or {rank + 1}, without the batch) and a weight of"
            f" {rank + 2} are needed, got shapes {x.shape} and {weight.shape}."
        )
    alone = len(x.shape) == rank + 1
    return reshape(x, (1, *x.shape)) if alone else x, alone


def biased(name: str, out: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``out`` of shape ``(batch, channels, *space)`` with ``bias``, one number a channel, added."""
    if bias is None:
        return out
    if bias.shape != (out.shape[1],):
        raise ShapeError(f"{name}: a bias of shape ({out.shape[1]},) is needed, got {bias.shape}.")
    return out + reshape(beside(out, bias), (out.shape[1], *(1,) * (len(out.shape) - 2)))


def _padded(
    name: str, rank: int, x: Tensor, weight: Tensor, stride: Lengths, padding: str, dilation: Lengths
) -> tuple[Tensor, Lengths]:
    """Turn ``"same"`` and ``"valid"`` into numbers, padding by hand where the two sides differ."""
    if padding == "valid":
        return x, 0
    if padding != "same":
        raise ArgumentError(f"{name}: padding must be numbers, 'same' or 'valid', got {padding!r}.")
    if any(s != 1 for s in spread(name, "stride", stride, rank, 1)):
        raise ArgumentError(f"{name}: padding='same' needs stride 1, got {stride!r}.")
    reach = spread(name, "dilation", dilation, rank, 1)
    total = [d * (k - 1) for d, k in zip(reach, weight.shape[2:], strict=True)]
    low = tuple(n // 2 for n in total)
    if all(n % 2 == 0 for n in total):
        return x, low
    high = tuple(n - n // 2 for n in total)
    return pad(x, (0, 0, *low), (0, 0, *high)), 0


@with_form
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1,
    padding: Lengths | str = 0, dilation: Lengths = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the convolution over one axis: ``([batch,] in, length)`` with ``(out, in / groups, kernel)``.

    ``bias`` has one number an output channel. Raises ``ShapeError`` where the shapes do not fit.

    >>> import tensorbus as tb
    >>> tb.conv1d(tb.asarray([[1.0, 2.0, 3.0]]), tb.ones((1, 1, 2))).tolist()
    [[3.0, 5.0]]
    """
    return _convolution(1, input, weight, bias, stride, padding, dilation, groups)


@with_form
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1,
    padding: Lengths | str = 0, dilation: Lengths = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the convolution over two axes: ``([batch,] in, *space)`` with ``(out, in / groups, *kernel)``.

    Stride, padding and dilation are integers or one for each axis; padding may be ``"same"``, which needs
    stride 1, or ``"valid"``. Raises ``ShapeError`` where the shapes do not fit.
    """
    return _convolution(2, input, weight, bias, stride, padding, dilation, groups)


@with_form
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Lengths = 1,
    padding: Lengths | str = 0, dilation: Lengths = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Return the convolution over three axes: ``conv2d`` with one more."""
    return _convolution(3, input, weight, bias, stride, padding, dilation, groups)
