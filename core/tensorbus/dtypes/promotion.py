"""Type promotion: the dtype that tensors and Python scalars have together.

It follows the Python array API standard 2025.12, section "Type Promotion Rules". Where the standard leaves
mixed kinds open, an integer with a floating-point dtype gives the floating-point dtype, as in PyTorch. Python
scalars are weak: they take the dtype of the tensor that they meet, unless their kind is higher.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import DtypeError
from . import definition
from .definition import (
    SIGNED,
    DType,
    Scalar,
    bfloat16,
    bool_,
    complex64,
    complex128,
    default_int,
    float16,
    float32,
    float64,
)

_KINDS: Final[list[type]] = [bool, int, float, complex]
"""Of Python scalars, those that hold less before those that hold more."""
_promotions: dict[tuple[DType, DType], DType] = {}


def promote(a: DType, b: DType) -> DType:
    """Return the dtype that ``a`` and ``b`` promote to.

    Raises ``DtypeError`` where no dtype holds both (uint64 with a signed integer; two 8-bit floats).

    >>> from tensorbus.dtypes import float16, bfloat16, int8, int32, uint8
    >>> promote(int8, uint8), promote(int32, float16), promote(float16, bfloat16)
    (tensorbus.int16, tensorbus.float16, tensorbus.float32)
    """
    promoted = _promotions.get((a, b))
    if promoted is None:
        promoted = _promotions[a, b] = _promote(a, b)
    return promoted


def _promote(a: DType, b: DType) -> DType:
    if a is b:
        return a
    ranks = ("bool", "int", "uint", "float", "complex")
    low, high = sorted((a, b), key=lambda d: (ranks.index(d.kind), d.itemsize))
    if low.kind == "bool":
        return high
    if low.kind == high.kind:
        if low.itemsize == high.itemsize:
            if {low, high} == {float16, bfloat16}:
                return float32
            raise DtypeError(f"{a} and {b} have no common dtype; cast one of them with .to(dtype).")
        return high
    if low.kind == "int" and high.kind == "uint":
        needed = max(low.itemsize, 2 * high.itemsize)
        if needed > 8:
            raise DtypeError(f"{a} and {b} have no common integer dtype; cast one of them with .to(dtype).")
        return next(d for d in SIGNED if d.itemsize == needed)
    if high.kind == "complex" and low is float64:
        return complex128
    return high


def scalar_dtype(value: Scalar) -> DType:
    """Return the default dtype for a Python scalar.

    >>> scalar_dtype(1), scalar_dtype(1.5)
    (tensorbus.int64, tensorbus.float32)
    """
    if isinstance(value, bool):
        return bool_
    if isinstance(value, int):
        return default_int
    if isinstance(value, float):
        return definition.default_float
    return definition.default_complex


def promote_scalar(a: DType, kind: type) -> DType:
    """Return the dtype of a tensor of dtype ``a`` combined with a Python scalar of type ``kind``.

    >>> from tensorbus.dtypes import float16, int8
    >>> promote_scalar(float16, float), promote_scalar(int8, int), promote_scalar(int8, float)
    (tensorbus.float16, tensorbus.int8, tensorbus.float32)
    """
    if kind is bool:
        return a
    if kind is int:
        return default_int if a is bool_ else a
    if kind is float:
        return a if a.is_inexact else definition.default_float
    if a.is_complex:
        return a
    if a.is_inexact:
        return complex128 if a is float64 else complex64
    return definition.default_complex


def common_dtype(operands: Sequence[DType | type]) -> DType:
    """Return what dtypes and weak Python scalars (given by their type) promote to."""
    strong = [d for d in operands if isinstance(d, DType)]
    weak = [d for d in operands if not isinstance(d, DType)]
    if not strong:
        return scalar_dtype(max(weak, key=_KINDS.index)(0))
    common = strong[0]
    for d in strong[1:]:
        common = promote(common, d)
    for kind in weak:
        common = promote_scalar(common, kind)
    return common
