"""A product and what is added to it as one op: a device may add before the product is rounded."""

from __future__ import annotations

from typing import Any, Final

from ..dtypes import NUMERIC, DType
from ..errors import ShapeError
from .elementwise import broadcast_shapes, common_dtype, fit
from .matmul import product
from .op import Op, Spec, table

NAME: Final = "affine"


def _arguments(x: Any, y: Any, /, *added: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (x, y, *added), {}


def _infer(specs: tuple[Spec, ...]) -> Spec:
    x, y, *added = specs
    found = product.infer((x, y))
    shape: tuple[int, ...] = found.shape
    for other in added:
        if broadcast_shapes(shape, other.shape) != shape:
            raise ShapeError(
                f"{NAME}: the product has shape {shape}; what is added must broadcast to it;"
                f" got {other.shape}."
            )
    return Spec(shape, x.dtype)


def _compute(given: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
    return (fit(NAME, common_dtype(given), NUMERIC),) * len(given)


def _decompose(x: Any, y: Any, *added: Any) -> Any:
    made = product(x, y)
    for other in added:
        made = made + other
    return made


affine = table.add(
    Op(
        name=NAME, family="matmul", operands=("x", "y", "*added"), arguments=_arguments, infer=_infer,
        compute=_compute, decompose=_decompose, dtypes=NUMERIC,
        doc="The matrix product ``x @ y`` plus operands that broadcast to its shape.",
    )
)  # fmt: skip
