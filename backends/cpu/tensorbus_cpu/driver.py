"""The part of the cpu device that runs whole programs, ``csource/driver.c``, as Python sees it."""

from __future__ import annotations

import ctypes
import sys
import sysconfig
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import DeviceError

from .blas import blas_functions
from .compiler import CCompiler, c_source
from .memory import pool_context
from .tape import Tape

_PYTHON: Final = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
"""How linkers are told that Python itself has the functions that are missing."""
_RUNTIME: Final = ("tb_share", "tb_enter", "tb_leave", "tb_malloc", "tb_free")


class Driver:
    """Makes programs of tapes, and functions of programs."""

    def __init__(self, library: ctypes.CDLL) -> None:
        python = ctypes.PyDLL(None, handle=library._handle)
        self._program = python.tb_program
        self._program.argtypes, self._program.restype = (ctypes.c_void_p,), ctypes.py_object
        self._executable = python.tb_executable
        self._executable.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.c_int64)
        self._executable.restype = ctypes.py_object
        self._look = python.tb_look
        self._look.argtypes, self._look.restype = (ctypes.py_object, ctypes.c_void_p), None
        self._connect, self._use_blas = python.tb_connect, python.tb_use_blas

    @classmethod
    def start(cls, compiler: CCompiler) -> Driver | None:
        """Return the driver; None where this Python or NumPy is not laid out as it expects."""
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            return None
        try:
            made = cls(compiler.library(c_source("driver"), "-O1", "-ffp-contract=fast", *_PYTHON))
            made._begin(compiler)
        except (DeviceError, OSError, AttributeError):
            return None
        return made if made._is_right() else None

    def _begin(self, compiler: CCompiler) -> None:
        runtime = compiler.runtime
        parts = [ctypes.cast(getattr(runtime, name), ctypes.c_void_p).value for name in _RUNTIME]
        self._connect.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object)
        self._connect.restype = None
        self._connect(_numpy_table(), (ctypes.c_void_p * len(parts))(*parts), pool_context())
        functions = blas_functions()
        if functions:
            self._use_blas.argtypes, self._use_blas.restype = (ctypes.c_void_p,) * len(functions), None
            self._use_blas(*functions)

    def _is_right(self) -> bool:
        """Return whether an array looks from C as NumPy says that it is."""
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        for a in (x, x.T, x[:, 1], x.copy(), np.zeros((), np.int8)):
            seen = (ctypes.c_int64 * 8)()
            self._look(a, seen)
            flags = (a.flags.c_contiguous, a.flags.owndata, a.flags.aligned, a.flags.writeable)
            found = tuple(bool(seen[5] & bit) for bit in (1, 4, 256, 1024))
            said = [a.ctypes.data, a.ndim, *((a.shape[0], a.strides[0]) if a.ndim else (0, 0))]
            said.append(0 if a.base is None else id(a.base))
            if list(seen[:5]) != said or found != flags or seen[6] != id(a.dtype) or seen[7] != 1:
                return False
        return True

    def program(self, tape: Tape) -> Any:
        """Return the program of a tape, whose references are held by the program from then on."""
        data = np.array(tape.words, np.int64)
        return self._program(data.ctypes.data)

    def executable(self, program: Any, other: Callable[..., Any], inputs: int) -> Any:
        """Return the function that runs a program, and asks ``other`` where values lie otherwise."""
        return self._executable(program, other, inputs)


def _numpy_table() -> int:
    unwrap = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    return int(unwrap(np._core.multiarray._ARRAY_API, None))  # type: ignore[attr-defined]
