"""Whether work before an event is done, asked of the driver itself."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

DRIVER: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
NOT_READY: Final = 600
"""``CUDA_ERROR_NOT_READY``: work before an event is not done."""


@cache
def event_query() -> Callable[[int], int]:
    """Return the driver's function. CuPy's holds Python's lock, and the driver may keep it waiting.

    CuPy's ``done`` takes errors for work that is not done, too.
    """
    query = ctypes.CDLL(DRIVER).cuEventQuery
    query.argtypes, query.restype = (ctypes.c_void_p,), ctypes.c_int
    return query
