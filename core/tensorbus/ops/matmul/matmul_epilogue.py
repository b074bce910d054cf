"""A product and what is added to it as one op: a device may add, and go on, before the product is rounded."""

from __future__ import annotations

from typing import Any, Final

from ...dtypes.definition import NUMERIC, DType
from ...dtypes.promotion import common_dtype
from ...errors import ArgumentError, ShapeError
from ..definition import Op, Spec, table
from ..elementwise.family import broadcast_shapes, fit
from .matmul import product

NAME: Final = "affine"
ENDS: Final = ("relu", "gelu_tanh")
"""The ops of one operand that the sum may end in."""


def _arguments(x: Any, y: Any, /, *added: Any, ends: str = "") -> tuple[tuple[Any, ...], dict[str, Any]]:
    if ends and ends not in ENDS:
        raise ArgumentError(f"{NAME}: ends is {ends!r}; {', '.join(map(repr, ENDS))} or '' is needed.")
    return (x, y, *added), {"ends": ends}


def _infer(specs: tuple[Spec, ...], *, ends: str) -> Spec:
    x, y, *added = specs
    spec = product.infer((x, y))
    shape: tuple[int, ...] = spec.shape
    for other in added:
        if broadcast_shapes(shape, other.shape) != shape:
            raise ShapeError(
                f"{NAME}: the product has shape {shape}; what is added must broadcast to it;"
                f" got {other.shape}."
            )
    return Spec(shape, x.dtype)


def _compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit(NAME, common_dtype(operand_dtypes), NUMERIC),) * len(operand_dtypes)


def _decompose(x: Any, y: Any, *added: Any, ends: str) -> Any:
    total = product(x, y)
    for other in added:
        total = total + other
    return table.function(ends)(total) if ends else total


affine = table.add(
    Op(
        name=NAME, family="matmul", operands=("x", "y", "*added"), arguments=_arguments, infer=_infer,
        compute=_compute, decompose=_decompose, dtypes=NUMERIC, method=False,
        doc="``x @ y`` plus operands that broadcast to its shape; ``ends`` names an op that follows.",
    )
)  # fmt: skip
