"""Questions that programs ask about dtypes: limits, kinds, what promotes to what.

Sections "Data Type Functions" of the Python array API standard 2025.12. Tensors are only looked at for their
dtype, so this module knows none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ..errors import ArgumentError, DtypeError, suggest
from . import definition as dt
from .definition import DType
from .promotion import common_dtype, promote

_PRECISION: Final = {
    dt.float8_e4m3fn: (3, -6), dt.float8_e5m2: (2, -14), dt.float16: (10, -14), dt.bfloat16: (7, -126),
    dt.float32: (23, -126), dt.float64: (52, -1022),
}  # fmt: skip
"""Bits of the fraction, and the exponent of the smallest normal number."""

_SIGNED, _UNSIGNED = frozenset(dt.SIGNED), frozenset(dt.UNSIGNED)
KINDS: Final = {
    "bool": frozenset(dt.BOOL),
    "signed integer": _SIGNED,
    "unsigned integer": _UNSIGNED,
    "integral": _SIGNED | _UNSIGNED,
    "real floating": frozenset(dt.FLOATING),
    "complex floating": frozenset(dt.COMPLEX),
    "numeric": frozenset(dt.NUMERIC),
}
"""The standard's names of kinds of dtypes. The small floats are real floating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatInfo:
    """The limits of a real floating-point dtype: ``eps`` is the step from 1 to the next larger number."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """Another name of ``smallest_normal``."""
        return self.smallest_normal


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerInfo:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(name: str, x: Any) -> DType:
    dtype = x if isinstance(x, (DType, str)) else getattr(x, "dtype", None)
    if dtype is None:
        raise DtypeError(f"{name}: a dtype or a tensor is needed, got {x!r}.")
    return dt.dtype(dtype)


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a floating-point dtype or tensor; of a complex one, those of its parts.

    Raises ``DtypeError`` for integers and bools.

    >>> import tensorbus as tb
    >>> tb.finfo(tb.float16).max
    65504.0
    """
    dtype = dt.real_of(_dtype_of("finfo", type))
    if dtype not in _PRECISION:
        raise DtypeError(f"finfo: a floating-point dtype is needed, got {dtype}; see iinfo for integers.")
    bits, exponent = _PRECISION[dtype]
    top = dt.largest(dtype)
    return FloatInfo(
        bits=8 * dtype.itemsize, eps=2.0**-bits, max=top, min=-top, smallest_normal=2.0**exponent, dtype=dtype
    )


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer dtype or tensor. Raises ``DtypeError`` for others.

    >>> import tensorbus as tb
    >>> tb.iinfo(tb.int8).max
    127
    """
    dtype = _dtype_of("iinfo", type)
    if not dtype.is_integer:
        raise DtypeError(f"iinfo: an integer dtype is needed, got {dtype}; see finfo for floats.")
    low, high = dt.integer_range(dtype)
    return IntegerInfo(bits=8 * dtype.itemsize, max=high, min=low, dtype=dtype)


def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Return whether ``dtype`` is of a kind: a dtype, one of the standard's names, or any of a tuple of them.

    Raises ``DtypeError`` for an unknown name.

    >>> import tensorbus as tb
    >>> tb.isdtype(tb.float32, ("integral", "real floating"))
    True
    """
    if not isinstance(dtype, DType):
        raise DtypeError(f"isdtype: a dtype is needed, got {dtype!r}.")
    return any(dtype in _members(k) for k in (kind if isinstance(kind, tuple) else (kind,)))


def _members(kind: DType | str) -> frozenset[DType]:
    if isinstance(kind, DType):
        return frozenset((kind,))
    if not isinstance(kind, str) or kind not in KINDS:
        raise DtypeError(
            f"isdtype: no kind is called {kind!r}.{suggest(str(kind), KINDS)} There are: {', '.join(KINDS)}."
        )
    return KINDS[kind]


def can_cast(from_: Any, to: DType | str, /) -> bool:
    """Return whether promotion turns ``from_``, a dtype or a tensor, into ``to``.

    >>> import tensorbus as tb
    >>> tb.can_cast(tb.int8, tb.int16), tb.can_cast(tb.float64, tb.float32)
    (True, False)
    """
    target = _dtype_of("can_cast", to)
    try:
        return promote(_dtype_of("can_cast", from_), target) is target
    except DtypeError:
        return False


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the dtype that tensors, dtypes and Python scalars promote to together.

    Scalars are weak: they change only the kind. Raises ``DtypeError`` where there is no common dtype, and
    ``ArgumentError`` where scalars are all there is: a ``ValueError``, by which libraries know that case.

    >>> import tensorbus as tb
    >>> tb.result_type(tb.int8, tb.uint8), tb.result_type(tb.float16, 1.5)
    (tensorbus.int16, tensorbus.float16)
    """
    weak = (bool, int, float, complex)
    operands = [dt.plain(x) for x in arrays_and_dtypes]
    kinds = [type(x) if type(x) in weak else _dtype_of("result_type", x) for x in operands]
    if not any(isinstance(k, DType) for k in kinds):
        raise ArgumentError("result_type: at least one tensor or dtype is needed beside Python scalars.")
    return common_dtype(kinds)
