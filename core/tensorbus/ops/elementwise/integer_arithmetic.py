"""Arithmetic of whole numbers: divisors and bits."""

from __future__ import annotations

from typing import Any

from ...dtypes import definition as dt
from ...dtypes.definition import INTEGER, DType
from .arithmetic import abs, floor_divide
from .comparison import equal
from .family import elementwise
from .where_cast import cast, tensors, where

gcd = elementwise(
    "gcd", arity=2, dtypes=INTEGER, doc="The greatest common divisor, never negative; of 0 and 0 it is 0."
)


def _lcm(x: Any, y: Any) -> Any:
    x, y = tensors(x, y)
    shared = gcd(x, y)
    return floor_divide(abs(x), where(equal(shared, 0), 1, shared)) * abs(y)


lcm = elementwise(
    "lcm", arity=2, dtypes=INTEGER, decompose=_lcm, doc="The least common multiple, never negative; it wraps."
)


def _to_uint8(_: DType) -> DType:
    return dt.uint8


def _count(x: Any) -> Any:
    """Add up neighbouring groups of bits, then the bytes."""
    bits = cast(abs(x), next(d for d in dt.UNSIGNED if d.itemsize == x.dtype.itemsize))
    width = 8 * x.dtype.itemsize
    pairs, fours, bytes_ = (_repeated(pattern, width) for pattern in (0x55, 0x33, 0x0F))
    bits = bits - ((bits >> 1) & pairs)
    bits = (bits & fours) + ((bits >> 2) & fours)
    bits = (bits + (bits >> 4)) & bytes_
    shift = 8
    while shift < width:
        bits = bits + (bits >> shift)
        shift *= 2
    return cast(bits & 0x7F, dt.uint8)


def _repeated(pattern: int, width: int) -> int:
    return sum(pattern << place for place in range(0, width, 8))


bitwise_count = elementwise(
    "bitwise_count", method=False, dtypes=INTEGER, result=_to_uint8, decompose=_count,
    doc="How many bits of the magnitude of ``x`` are set.",
)  # fmt: skip
