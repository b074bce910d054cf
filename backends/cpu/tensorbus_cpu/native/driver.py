"""The part of the cpu device that runs whole programs, ``csource/driver.c``, as Python sees it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from tensorbus.backend_api import DeviceError, IndexingError, OutOfMemoryError

from ..compiler import FAST_COMPILATION, NATIVE, CCompiler, c_source
from ..gemm.blas_call import blas_functions
from .compile_queue import COMPILE_QUEUE
from .numpy_abi import PYTHON, connected

_TABLE: Final = ("numpy_abi", "types", "bytecode")
_DRIVER: Final = ("types", "gemm", "nontemporal", "driver")
"""The files of a library's source, in order: of what reads programs, of what runs them, after "numpy_abi"."""


if TYPE_CHECKING:  # making a protocol takes time, too

    class Numbers(Protocol):
        """Bytecode in this process."""

        @property
        def words(self) -> list[int]:
            """The numbers, whose references are there as long as it is."""

        @property
        def products(self) -> bool:
            """Whether there are products of matrices."""


class Driver:
    """Makes programs of bytecode, and functions of programs."""

    def __init__(self, compiler: CCompiler, table: ctypes.CDLL, python: ctypes.PyDLL) -> None:
        self._program = ctypes.PyDLL(None, handle=table._handle).tb_program
        self._program.argtypes, self._program.restype = (ctypes.c_void_p,), ctypes.py_object
        self._executable = python.tb_executable
        self._executable.argtypes = (ctypes.py_object, ctypes.py_object, ctypes.c_int64)
        self._executable.restype = ctypes.py_object
        self._times = python.tb_times
        self._times.argtypes, self._times.restype = (ctypes.py_object,), ctypes.POINTER(ctypes.c_int64)
        self._use_blas = python.tb_use_blas
        self._use_small: Any = python.tb_use_small
        self._compiler = compiler

    @classmethod
    def start(cls, compiler: CCompiler) -> Driver | None:
        """Return the driver; None where this Python or NumPy is not laid out as it expects."""
        try:
            library = connected(compiler, _DRIVER, *FAST_COMPILATION, "-ffp-contract=fast")
            if library is None:
                return None
            driver = cls(compiler, _bytecode_reader(compiler), library)
        except (DeviceError, OSError, AttributeError):
            return None
        functions = blas_functions()
        if functions:
            driver._use_blas.argtypes, driver._use_blas.restype = (ctypes.c_void_p,) * len(functions), None
            driver._use_blas(*functions)
        return driver

    def _multiply(self) -> None:
        """Let programs multiply small matrices."""
        use = self._use_small  # which another thread may set to None meanwhile
        if use is not None:
            small = small_products(self._compiler)
            parts = (ctypes.cast(f, ctypes.c_void_p) for f in (small.tb_small_float, small.tb_small_double))
            use.argtypes, use.restype = (ctypes.c_void_p,) * 2, None
            use(*parts)
            self._use_small = None

    def program(self, tape: Numbers) -> Any:
        """Return the program of bytecode, whose references are held by the program from then on."""
        if tape.products:
            self._multiply()
        data = np.asarray(tape.words, np.int64)
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


def start_compiling(compiler: CCompiler, products: bool = False) -> None:
    """Compile what runs programs, where need be, while the caller does something else.

    ``products``: also what multiplies small matrices.
    """
    if compiler not in _started:  # what takes longest first
        last = (_bytecode_reader, small_products) if products else (_bytecode_reader,)
        for parts in ((driver_of,), (_remaining,), last):
            _in_background(compiler, *parts)
    elif products:
        start_compiling_products(compiler)


def _in_background(compiler: CCompiler, *parts: Callable[[CCompiler], object]) -> None:
    COMPILE_QUEUE.submit(partial(_ignoring_errors, compiler, *parts))


def _remaining(compiler: CCompiler) -> None:
    """Compile what else there is, in the order in which it is needed."""
    compiler.asked()
    NATIVE.compiler()


def _bytecode_reader(compiler: CCompiler) -> ctypes.CDLL:
    """Return what reads programs. It does so once for each: optimizing it takes longer than it saves."""
    return compiler.library("\n".join(map(c_source, _TABLE)), "-O0", *PYTHON)


def start_compiling_products(compiler: CCompiler) -> None:
    """Compile what multiplies small matrices, as ``start_compiling`` does."""
    _in_background(compiler, small_products)


def small_products(compiler: CCompiler) -> ctypes.CDLL:
    """Return the functions that multiply small matrices."""
    return compiler.library(c_source("small_gemm"), "-ffp-contract=fast")


def _ignoring_errors(compiler: CCompiler, *functions: Callable[[CCompiler], object]) -> None:
    for function in functions:
        with suppress(DeviceError):  # who needs it asks again, and is told
            function(compiler)


def _after_fork() -> None:
    """Begin anew in a child, where nobody finishes what a thread of the parent had begun."""
    global _lock
    _lock = threading.Lock()
    _started.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def error_raiser(names: Sequence[str]) -> Callable[[int, int, int, int], None]:
    """Return what raises the error of a program: of memory, or that a kernel reported an index.

    ``names`` are the ops that may report errors, in the order of their codes, from 1 on.
    """

    def fail(what: int, code: int, value: int, limit: int) -> None:
        if not what:
            raise OutOfMemoryError("a compiled program on cpu:0: no memory left for its results.")
        name = names[code - 1] if 0 < code <= len(names) else "an op"
        raise IndexingError(f"{name}: index {value} is out of range for an axis of length {limit}.")

    return fail
