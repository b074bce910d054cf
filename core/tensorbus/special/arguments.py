"""Operands of the functions of ``tensorbus.special``, and the dtype in which these compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..dtypes import definition as dt
from ..dtypes.definition import FLOATING, DType
from ..dtypes.promotion import common_dtype
from ..errors import DtypeError
from ..ops.creation.creation import full
from ..ops.elementwise.family import fit
from ..ops.elementwise.where_cast import cast, narrowed


def real(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function of floating-point tensors take real operands of any dtype, and numbers beside a tensor.

    Integers count as the default dtype, as they do in ``exp``; narrow dtypes are computed in float32 and
    rounded once. Raises ``DtypeError`` for complex operands, and where no operand is a tensor.
    """
    name = function.__name__.lstrip("_")

    @wraps(function)
    def call(*operands: Any) -> Any:
        like = next((x for x in operands if isinstance(getattr(x, "dtype", None), DType)), None)
        if like is None:
            kinds = ", ".join(type(x).__name__ for x in operands)
            raise DtypeError(
                f"{name}: at least one operand must be a tensor, got {kinds}."
                " Make one with tensorbus.asarray."
            )
        common = fit(name, common_dtype([_kind(x) for x in operands]), FLOATING)
        inside = dt.float32 if common in dt.NARROW else common
        return narrowed(function(*(_operand(name, x, inside, like) for x in operands)), common)

    return call


def _kind(x: Any) -> DType | type:
    dtype = getattr(x, "dtype", None)
    if not isinstance(dtype, DType):
        return float
    return dt.default_float if dtype.is_integer or dtype is dt.bool_ else dtype


def _operand(name: str, x: Any, dtype: DType, like: Any) -> Any:
    if isinstance(getattr(x, "dtype", None), DType):
        return x if x.dtype is dtype else cast(x, dtype)
    if getattr(x, "shape", ()) != () or isinstance(x, complex) or not hasattr(type(x), "__float__"):
        raise DtypeError(
            f"{name}: an operand is a real tensor or a number, got {type(x).__name__}."
            " Make a tensor with tensorbus.asarray."
        )
    return full((), float(x), dtype=dtype, device=like.device)
