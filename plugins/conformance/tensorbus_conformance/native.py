"""NumPy's names of the dtypes, and elements widened for references."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
from tensorbus.dtypes import definition as dt
from tensorbus.dtypes.definition import DType

Array = np.ndarray[Any, Any]
_NARROW_FLOATS: Final = {
    dt.bfloat16: ml_dtypes.bfloat16,
    dt.float8_e4m3fn: ml_dtypes.float8_e4m3fn,
    dt.float8_e5m2: ml_dtypes.float8_e5m2,
}


def native(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's name of a dtype; the small floats are those of ml_dtypes."""
    kind: np.dtype[Any] = np.dtype(_NARROW_FLOATS.get(dtype, dtype.name))
    return kind


def wide(x: Any) -> Array:
    """Return floats in float64 and complex numbers in complex128; others as they are."""
    held: Array = np.asarray(x)
    if held.dtype.kind in "biu":
        return held
    return held.astype(np.complex128 if held.dtype.kind == "c" else np.float64)
