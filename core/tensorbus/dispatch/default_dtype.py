"""The dtype that floats get where nothing says another."""

from __future__ import annotations

from ..dtypes import definition as dtypes
from ..dtypes.definition import DType
from ..errors import DtypeError
from .plan import invalidate


def set_default_dtype(dtype: DType | str) -> None:
    """Make ``dtype`` what Python floats, integers in float functions, and new tensors get; for all threads.

    Complex numbers then get complex128 for float64, else complex64. Raises ``DtypeError`` for another kind.

    >>> import tensorbus as tb
    >>> tb.set_default_dtype(tb.float64)
    >>> tb.asarray([1.0]).dtype, tb.zeros(2).dtype
    (tensorbus.float64, tensorbus.float64)
    >>> tb.set_default_dtype(tb.float32)
    """
    new = dtypes.dtype(dtype)
    if new not in (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64):
        raise DtypeError(
            f"set_default_dtype: the default is float16, bfloat16, float32 or float64, got {new}."
        )
    dtypes.default_float = new
    dtypes.default_complex = dtypes.complex128 if new is dtypes.float64 else dtypes.complex64
    invalidate()


def get_default_dtype() -> DType:
    """Return the dtype that Python floats and new tensors get.

    >>> import tensorbus as tb
    >>> tb.get_default_dtype()
    tensorbus.float32
    """
    return dtypes.default_float
