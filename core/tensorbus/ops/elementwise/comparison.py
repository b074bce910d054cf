"""Comparison, logic and bits. None of these has a derivative."""

from __future__ import annotations

from ...dtypes import definition as dt
from ...dtypes.definition import ALL, BOOL, FLOATING, INEXACT, INTEGER, REAL, DType
from .family import elementwise


def _to_bool(_: DType) -> DType:
    return dt.bool_


_ORDERED = BOOL + REAL
equal = elementwise("equal", arity=2, dtypes=ALL, result=_to_bool, doc="``x == y``.")
not_equal = elementwise("not_equal", arity=2, dtypes=ALL, result=_to_bool, doc="``x != y``.")
less = elementwise("less", arity=2, dtypes=_ORDERED, result=_to_bool, doc="``x < y``.")
less_equal = elementwise("less_equal", arity=2, dtypes=_ORDERED, result=_to_bool, doc="``x <= y``.")
greater = elementwise("greater", arity=2, dtypes=_ORDERED, result=_to_bool, doc="``x > y``.")
greater_equal = elementwise("greater_equal", arity=2, dtypes=_ORDERED, result=_to_bool, doc="``x >= y``.")
isnan = elementwise("isnan", dtypes=INEXACT, result=_to_bool, doc="True where ``x`` is NaN.")
isinf = elementwise("isinf", dtypes=INEXACT, result=_to_bool, doc="True where ``x`` is infinite.")
isfinite = elementwise("isfinite", dtypes=INEXACT, result=_to_bool, doc="True where ``x`` is finite.")
signbit = elementwise("signbit", dtypes=FLOATING, result=_to_bool, doc="True where the sign bit is set.")
logical_and = elementwise(
    "logical_and", arity=2, dtypes=BOOL, truth=True, doc="True where both are true (not zero)."
)
logical_or = elementwise(
    "logical_or", arity=2, dtypes=BOOL, truth=True, doc="True where either is true (not zero)."
)
logical_xor = elementwise(
    "logical_xor", arity=2, dtypes=BOOL, truth=True, doc="True where exactly one is true (not zero)."
)
logical_not = elementwise("logical_not", dtypes=BOOL, truth=True, doc="True where ``x`` is false (zero).")
_BITS = BOOL + INTEGER
bitwise_and = elementwise("bitwise_and", arity=2, dtypes=_BITS, doc="``x & y``.")
bitwise_or = elementwise("bitwise_or", arity=2, dtypes=_BITS, doc="``x | y``.")
bitwise_xor = elementwise("bitwise_xor", arity=2, dtypes=_BITS, doc="``x ^ y``.")
bitwise_invert = elementwise("bitwise_invert", dtypes=_BITS, doc="``~x``.")
bitwise_left_shift = elementwise(
    "bitwise_left_shift", arity=2, dtypes=INTEGER, doc="``x << y``; shifts by the width or more give 0."
)
bitwise_right_shift = elementwise(
    "bitwise_right_shift", arity=2, dtypes=INTEGER,
    doc="``x >> y``, keeping the sign; shifts by the width or more give 0 or -1.",
)  # fmt: skip
