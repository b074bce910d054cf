"""Element types: what each holds, and how they promote.

In order: ``definition``, ``promotion``, ``info``.
"""

from __future__ import annotations

from typing import Any, Final

from . import definition
from .definition import ALL as ALL
from .definition import BOOL as BOOL
from .definition import BY_NAME as BY_NAME
from .definition import COMPLEX as COMPLEX
from .definition import FLOATING as FLOATING
from .definition import INEXACT as INEXACT
from .definition import INTEGER as INTEGER
from .definition import NARROW as NARROW
from .definition import NUMERIC as NUMERIC
from .definition import REAL as REAL
from .definition import SIGNED as SIGNED
from .definition import UNSIGNED as UNSIGNED
from .definition import DType as DType
from .definition import Kind as Kind
from .definition import Scalar as Scalar
from .definition import as_scalar as as_scalar
from .definition import bfloat16 as bfloat16
from .definition import bool_ as bool_
from .definition import check_scalar as check_scalar
from .definition import complex64 as complex64
from .definition import complex128 as complex128
from .definition import complex_of as complex_of
from .definition import dtype as dtype
from .definition import float8_e4m3fn as float8_e4m3fn
from .definition import float8_e5m2 as float8_e5m2
from .definition import float16 as float16
from .definition import float32 as float32
from .definition import float64 as float64
from .definition import int8 as int8
from .definition import int16 as int16
from .definition import int32 as int32
from .definition import int64 as int64
from .definition import integer_range as integer_range
from .definition import largest as largest
from .definition import plain as plain
from .definition import real_of as real_of
from .definition import uint8 as uint8
from .definition import uint16 as uint16
from .definition import uint32 as uint32
from .definition import uint64 as uint64
from .promotion import promote as promote
from .promotion import promote_scalar as promote_scalar
from .promotion import scalar_dtype as scalar_dtype

_DEFAULTS: Final = ("default_int", "default_float", "default_complex")


def __getattr__(name: str) -> Any:
    """Return the default dtypes as they stand now: ``set_default_dtype`` changes them."""
    if name not in _DEFAULTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(definition, name)
