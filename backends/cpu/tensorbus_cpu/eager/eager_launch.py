"""Eager calls that are nothing but launches: one function in C takes the arrays and returns the results.

What Python does after it has read a large array finds its own memory cold, as the array has gone through
the caches: 20 us of it take ten times as long. ``csource/launch.c`` does it instead, where this Python and
this NumPy are laid out as it expects.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from struct import pack, unpack
from typing import Any

import numpy as np
from tensorbus.backend_api import DeviceError

from ..compiler import NATIVE
from ..memory import address, empty
from ..native.numpy_abi import connected

_AXES, _BYTES, _PIECES = 3, 1 << 18, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A kernel over a grid, ``piece`` by ``piece``; ``buffers`` are numbers that ``Launches`` knows."""

    function: Any
    buffers: Sequence[int]
    params: Sequence[int | float]
    grid: Sequence[int]
    piece: Sequence[int]


class Launches:
    """The results that an eager call makes of so many packed ``arrays``, each of a dtype and shape.

    Buffers are numbered: the arrays, then the results, then scratch memory. Steps of one stage are run in any
    order, stages one after another. All are added before ``function`` is called.
    """

    def __init__(self, arrays: int, *results: tuple[Any, tuple[int, ...]]) -> None:
        self.arrays, self.results = arrays, results
        self._scratch: list[int] = []
        self._stages: list[list[Launch]] = []

    def scratch(self, nbytes: int) -> int:
        """Return the number of a buffer that is there as long as the call."""
        self._scratch.append(nbytes)
        return self.arrays + len(self.results) + len(self._scratch) - 1

    def add(self, step: Launch, stage: int | None = None) -> None:
        """Run this in a stage, or after all that was added before."""
        stage = len(self._stages) if stage is None else stage
        self._stages += ([] for _ in range(stage + 1 - len(self._stages)))
        self._stages[stage].append(step)

    def clear(self, buffer: int, nbytes: int, stage: int) -> None:
        """Set a buffer of so many bytes to 0."""
        compiler = NATIVE.needed()
        piece, clear = (max(_BYTES, -(-nbytes // _PIECES)),), compiler.runtime.tb_clear
        step = Launch(function=clear, buffers=(buffer,), params=(), grid=(nbytes,), piece=piece)
        self.add(step, stage)

    def function(self, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """Return what takes the arrays and gives the result, or a tuple of several.

        ``otherwise`` is called instead where not all of them are packed.
        """
        return self._launcher(otherwise, False)

    def repacking(self, pack: Callable[[Any], Any]) -> Callable[..., Any]:
        """Return the same, which has each array that is not packed copied by ``pack``."""
        return self._launcher(pack, True)

    def _launcher(self, other: Callable[..., Any], repacks: bool) -> Callable[..., Any]:
        routine = _routine()
        if routine is None:
            return self._in_python(other, repacks)
        words = np.array(self._words(), np.int64)
        launch: Callable[..., Any] = routine(words.ctypes.data, len(words), other, repacks)
        return launch

    def _words(self) -> list[int]:
        steps = [(s, len(stage)) for stage in self._stages for s in stage]
        words = [self.arrays, len(self.results), len(self._scratch), len(steps), *self._scratch]
        for dtype, shape in self.results:
            words += [id(dtype), prod(shape) * dtype.itemsize, len(shape), *shape]
        for s, group in steps:
            grid, piece = ((*sides, *(1,) * (_AXES - len(sides))) for sides in (s.grid, s.piece))
            words += [ctypes.cast(s.function, ctypes.c_void_p).value or 0, group]
            words += [length for pair in zip(grid, piece, strict=True) for length in pair]
            params = unpack(f"{len(s.params)}q", slots(s.params))
            words += [len(s.buffers), *s.buffers, len(params), *params]
        return words

    def _in_python(self, other: Callable[..., Any], repacks: bool) -> Callable[..., Any]:
        compiler = NATIVE.needed()
        steps = [
            (compiler.prepared(s.function, len(s.buffers), slots(s.params), s.grid, s.piece), s.buffers)
            for stage in self._stages
            for s in stage
        ]

        def run(*values: Any) -> Any:
            if not all(map(_is_packed, values)):
                if not repacks:
                    return other(*values)
                values = tuple(x if _is_packed(x) else other(x) for x in values)
            out = [empty(shape, dtype) for dtype, shape in self.results]
            memory = [address(x) for x in (*values, *out)]
            scratch = [empty((size,), np.uint8) for size in self._scratch]
            memory += map(address, scratch)
            for launch, buffers in steps:
                launch(*[memory[k] for k in buffers])
            return out[0] if len(out) == 1 else tuple(out)

        return run


def _is_packed(x: Any) -> bool:
    return bool(x.flags.c_contiguous and x.flags.aligned)


def slots(params: Sequence[int | float]) -> bytes:
    """Return parameters as kernels take them: 64 bits each."""
    return b"".join([pack("d" if type(v) is float else "q", v) for v in params])


@cache
def _routine() -> Any:
    """Return what makes functions of routines; None where the library does not compile or fit here."""
    compiler = NATIVE.compiler()
    try:
        library = connected(compiler, ("launch",)) if compiler is not None else None
    except DeviceError:
        return None
    if library is None:
        return None
    function = library.tb_routine
    function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.py_object, ctypes.c_int64)
    function.restype = ctypes.py_object
    return function
