"""Libraries that handle Python's and NumPy's objects themselves: those that begin with ``numpy_abi.c``."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Final

import numpy as np

from ..compiler import NATIVE, CCompiler, c_source
from ..memory import numpy_table, pool_context

PYTHON: Final = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
"""How linkers are told that Python itself has the functions that are missing."""
_RUNTIME: Final = ("tb_share", "tb_enter", "tb_leave", "tb_malloc", "tb_free")


def connected(compiler: CCompiler, sources: Sequence[str], *options: str) -> ctypes.PyDLL | None:
    """Return a library of C sources that is told where Python, NumPy and the runtime are.

    None where this Python or NumPy is not laid out as it expects. Raises ``DeviceError`` where it does not
    compile.
    """
    if "t" in getattr(sys, "abiflags", "") or sys.implementation.name != "cpython":  # t: without its lock
        return None
    source = "\n".join(map(c_source, ("numpy_abi", *sources)))
    library = compiler.library(source, "-O1", *options, *PYTHON)
    python = ctypes.PyDLL(None, handle=library._handle)
    NATIVE.compiler()  # which gives the context its pool: another thread may only be about to
    parts = [ctypes.cast(getattr(compiler.runtime, name), ctypes.c_void_p).value for name in _RUNTIME]
    python.tb_connect.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object)
    python.tb_connect.restype = None
    python.tb_connect(numpy_table(), (ctypes.c_void_p * len(parts))(*parts), pool_context())
    return python if _is_right(python) else None


def _is_right(python: ctypes.PyDLL) -> bool:
    """Return whether an array looks from C as NumPy says that it is."""
    look = python.tb_look
    look.argtypes, look.restype = (ctypes.py_object, ctypes.c_void_p), None
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for a in (x, x.T, x[:, 1], x.copy(), np.zeros((), np.int8)):
        seen = (ctypes.c_int64 * 8)()
        look(a, seen)
        flags = (a.flags.c_contiguous, a.flags.owndata, a.flags.aligned, a.flags.writeable)
        seen_flags = tuple(bool(seen[5] & bit) for bit in (1, 4, 256, 1024))
        expected = [a.ctypes.data, a.ndim, *((a.shape[0], a.strides[0]) if a.ndim else (0, 0))]
        expected.append(0 if a.base is None else id(a.base))
        if list(seen[:5]) != expected or seen_flags != flags or seen[6] != id(a.dtype) or seen[7] != 1:
            return False
    return True
