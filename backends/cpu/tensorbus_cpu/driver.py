"""The part of the cpu device that runs whole programs, ``csource/driver.c``, as Python sees it."""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from tensorbus.backend_api import DeviceError, IndexingError, OutOfMemoryError

from .blas import blas_functions
from .compiler import NATIVE, CCompiler, c_source
from .memory import numpy_table, pool_context

_PYTHON: Final = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
"""How linkers are told that Python itself has the functions that are missing."""
_TABLE: Final = ("python", "types", "table")
_DRIVER: Final = ("python", "types", "gemm", "past", "driver")
"""The files of a library's source, in order: of what reads programs, of what runs them."""
_RUNTIME: Final = ("tb_share", "tb_enter", "tb_leave", "tb_malloc", "tb_free")


if TYPE_CHECKING:  # making a protocol takes time, too

    class Numbers(Protocol):
        """A tape in this process."""

        @property
        def words(self) -> list[int]:
            """The numbers, whose references are there as long as it is."""

        @property
        def products(self) -> bool:
            """Whether there are products of matrices."""


class Driver:
    """Makes programs of tapes, and functions of programs."""

    def __init__(self, compiler: CCompiler, table: ctypes.CDLL, library: ctypes.CDLL) -> None:
        python = ctypes.PyDLL(None, handle=library._handle)
        self._program = ctypes.PyDLL(None, handle=table._handle).tb_program
        self._program.argtypes, self._program.restype = (ctypes.c_void_p,), ctypes.py_object
        self._executable = python.tb_executable
        self._executable.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.c_int64)
        self._executable.restype = ctypes.py_object
        self._look = python.tb_look
        self._look.argtypes, self._look.restype = (ctypes.py_object, ctypes.c_void_p), None
        self._times = python.tb_times
        self._times.argtypes, self._times.restype = (ctypes.py_object,), ctypes.POINTER(ctypes.c_int64)
        self._connect, self._use_blas = python.tb_connect, python.tb_use_blas
        self._use_small: Any = python.tb_use_small
        self._compiler = compiler

    @classmethod
    def start(cls, compiler: CCompiler) -> Driver | None:
        """Return the driver; None where this Python or NumPy is not laid out as it expects."""
        if sysconfig.get_config_var("Py_GIL_DISABLED"):
            return None
        try:
            source = "\n".join(map(c_source, _DRIVER))
            library = compiler.library(source, "-O1", "-ffp-contract=fast", *_PYTHON)
            made = cls(compiler, _table(compiler), library)
            made._begin(compiler)
        except (DeviceError, OSError, AttributeError):
            return None
        return made if made._is_right() else None

    def _begin(self, compiler: CCompiler) -> None:
        runtime = compiler.runtime
        NATIVE.compiler()  # which gives the context its pool: another thread may only be about to
        parts = [ctypes.cast(getattr(runtime, name), ctypes.c_void_p).value for name in _RUNTIME]
        self._connect.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object)
        self._connect.restype = None
        self._connect(numpy_table(), (ctypes.c_void_p * len(parts))(*parts), pool_context())
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

    def _multiply(self) -> None:
        """Let programs multiply small matrices."""
        if self._use_small is not None:
            small = small_products(self._compiler)
            parts = (ctypes.cast(f, ctypes.c_void_p) for f in (small.tb_small_float, small.tb_small_double))
            self._use_small.argtypes, self._use_small.restype = (ctypes.c_void_p,) * 2, None
            self._use_small(*parts)
            self._use_small = None

    def program(self, tape: Numbers) -> Any:
        """Return the program of a tape, whose references are held by the program from then on."""
        if tape.products:
            self._multiply()
        data = np.array(tape.words, np.int64)
        return self._program(data.ctypes.data)

    def executable(self, program: Any, other: Callable[..., Any], inputs: int) -> Any:
        """Return the function that runs a program, and asks ``other`` where values lie otherwise."""
        return self._executable(program, other, inputs)

    def times(self, program: Any, count: int) -> Any:
        """Return where a program notes the nanoseconds of each of its ``count`` steps, from now on."""
        return np.ctypeslib.as_array(self._times(program), (count,))


_started: dict[CCompiler, Driver | None] = {}
_lock = threading.Lock()


def driver_of(compiler: CCompiler) -> Driver | None:
    """Return what runs programs, compiled where it is not on disk; None where it cannot run here."""
    with _lock:
        if compiler not in _started:
            _started[compiler] = Driver.start(compiler)
        return _started[compiler]


def begin(compiler: CCompiler) -> None:
    """Compile what runs programs, where need be, while the caller does something else."""
    if compiler not in _started:  # what takes longest first; a core is left for the caller
        for part in (driver_of, _rest, _table):
            threading.Thread(target=_quietly, args=(part, compiler), daemon=True).start()


def _rest(compiler: CCompiler) -> None:
    """Compile what else there is, in the order in which it is needed."""
    compiler.asked()
    NATIVE.compiler()


def _table(compiler: CCompiler) -> ctypes.CDLL:
    """Return what reads programs. It does so once for each: optimizing it takes longer than it saves."""
    return compiler.library("\n".join(map(c_source, _TABLE)), "-O0", *_PYTHON)


def begin_products(compiler: CCompiler) -> None:
    """Compile what multiplies small matrices, as ``begin`` does."""
    threading.Thread(target=_quietly, args=(small_products, compiler), daemon=True).start()


def small_products(compiler: CCompiler) -> ctypes.CDLL:
    """Return the functions that multiply small matrices."""
    return compiler.library(c_source("small"), "-ffp-contract=fast")


def _quietly(function: Callable[[CCompiler], object], compiler: CCompiler) -> None:
    with suppress(DeviceError):  # who needs it asks again, and is told
        function(compiler)


def _after_fork() -> None:
    """Begin anew in a child, where nobody finishes what a thread of the parent had begun."""
    global _lock
    _lock = threading.Lock()
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def failing(names: Sequence[str]) -> Callable[[int, int, int, int], None]:
    """Return what raises the error of a program: of memory, or that a kernel reported an index.

    ``names`` are the ops that may report errors, in the order of their codes, from 1 on.
    """

    def fail(what: int, code: int, value: int, limit: int) -> None:
        if not what:
            raise OutOfMemoryError("a compiled program on cpu:0: no memory left for its results.")
        name = names[code - 1] if 0 < code <= len(names) else "an op"
        raise IndexingError(f"{name}: index {value} is out of range for an axis of length {limit}.")

    return fail
