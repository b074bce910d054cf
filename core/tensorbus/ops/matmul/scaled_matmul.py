"""Products of quantized matrices: of floats of 8 bits, or int8, with factors that bring them to size.

Narrow numbers keep the digits of what they stand for, and a factor for the whole matrix, or for each row and
column, its size (Micikevicius et al. 2022, section 3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ...dtypes.definition import DType, bfloat16, dtype, float8_e4m3fn, float8_e5m2, float16, float32, int8
from ...errors import DtypeError, ShapeError
from ..call_errors import with_form
from ..definition import Op, Shape, Spec, table
from ..elementwise.family import Operand, broadcast_in, broadcast_shapes
from ..elementwise.where_cast import cast
from .matmul import product

if TYPE_CHECKING:
    from ...tensor.tensor import Tensor

NAME: Final = "scaled_matmul"
QUANTIZED: Final = (int8, float8_e4m3fn, float8_e5m2)
RESULTS: Final = (float32, float16, bfloat16)


def _arguments(
    x: Operand, y: Operand, scale_x: Operand, scale_y: Operand, /, bias: Operand | None = None, *,
    dtype: DType | str = float32,
) -> tuple[tuple[Operand, ...], dict[str, Any]]:  # fmt: skip
    result_dtype = _dtype(dtype)
    if result_dtype not in RESULTS:
        names = ", ".join(d.name for d in RESULTS)
        raise DtypeError(f"{NAME}: no result in {result_dtype}; dtype must be one of {names}.")
    return (x, y, scale_x, scale_y, *(() if bias is None else (bias,))), {"dtype": result_dtype}


_dtype = dtype


def _infer(specs: tuple[Spec, ...], *, dtype: DType) -> Spec:
    x, y, *others = specs
    if len(x.shape) < 2 or len(y.shape) < 2 or x.shape[-1] != y.shape[-2]:
        raise ShapeError(
            f"{NAME}: shapes {x.shape} and {y.shape} do not fit; the last axis of the first must have the"
            f" length of the last but one of the second, and both need two axes."
        )
    lead = broadcast_in(NAME, (x.shape, y.shape), (x.shape[:-2], y.shape[:-2]))
    shape = (*lead, x.shape[-2], y.shape[-1])
    needed = {"scale_x": (*shape[:-1], 1), "scale_y": (*shape[:-2], 1, shape[-1]), "bias": shape}
    for (name, most), other in zip(needed.items(), others, strict=False):
        if not _fits(other.shape, most):
            raise ShapeError(f"{NAME}: {name} of shape {other.shape} does not broadcast to {most}.")
    return Spec(shape, dtype)


def _fits(shape: Shape, most: Shape) -> bool:
    try:
        return broadcast_shapes(shape, most) == most
    except ShapeError:
        return False


def _compute(dtypes: tuple[DType, ...], dtype: DType, **_: Any) -> tuple[DType, ...]:
    for name, kind in zip("xy", dtypes, strict=False):
        if kind not in QUANTIZED:
            names = ", ".join(d.name for d in QUANTIZED)
            raise DtypeError(f"{NAME}: {name} has dtype {kind}; it takes {names}. Cast it, after scaling.")
    if (dtypes[0] is int8) != (dtypes[1] is int8):
        raise DtypeError(f"{NAME}: x has dtype {dtypes[0]} and y {dtypes[1]}; both or none must be int8.")
    return (*dtypes[:2], float32, float32, *(dtype for _ in dtypes[4:]))


def _decompose(x: Any, y: Any, scale_x: Any, scale_y: Any, *bias: Any, dtype: DType) -> Any:
    total = product(cast(x, float32), cast(y, float32)) * scale_x * scale_y
    for row in bias:
        total = total + cast(row, float32)
    return cast(total, dtype)


_op = table.add(
    Op(
        name=NAME, family="matmul", operands=("x", "y", "scale_x", "scale_y", "*bias"), arguments=_arguments,
        infer=_infer, compute=_compute, decompose=_decompose, dtypes=QUANTIZED, method=False,
        doc="The matrix product of narrow numbers, times a factor for each operand.",
    )
)  # fmt: skip


@with_form
def scaled_matmul(
    x: Tensor, y: Tensor, scale_x: Operand, scale_y: Operand, bias: Tensor | None = None, *,
    dtype: DType | str = float32,
) -> Tensor:  # fmt: skip
    """Return ``(x @ y) * scale_x * scale_y + bias``, rounded once, to ``dtype``.

    ``x`` of shape ``(..., m, k)`` and ``y`` of ``(..., k, n)`` are float8_e4m3fn, float8_e5m2, or both int8.
    Scales are float32: one number, or what broadcasts to ``(..., m, 1)`` and ``(..., 1, n)``; ``bias``
    broadcasts to ``(..., m, n)``. ``dtype`` is float32, float16 or bfloat16. Products add up in float32; a
    GPU's units for floats of 8 bits keep about 14 bits of partial sums. Raises ``ShapeError`` where shapes do
    not fit and ``DtypeError`` for other dtypes.

    >>> import tensorbus as tb
    >>> x = tb.asarray([[1, 2], [3, -4]], dtype="int8")
    >>> tb.scaled_matmul(x, x, 0.5, tb.asarray([[1.0, 10.0]])).tolist()
    [[3.5, -30.0], [-4.5, 110.0]]
    """
    out: Tensor = table.function(NAME)(x, y, scale_x, scale_y, bias, dtype=dtype)
    return out
