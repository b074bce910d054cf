"""The eager table: NumPy's own functions, then what NumPy lacks."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, Kernel, KernelTable, dtypes, from_namespace

from .memory import DTYPES

_QUIET: Final = contextvars.copy_context()
_QUIET.run(np.seterr, all="ignore")
_run = _QUIET.run
_ARRAY = np.ndarray
_WIDENED: Final = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2})


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call ``function`` with NumPy's floating-point warnings off, and return an array where it gives a scalar.

    Running in a context that was prepared once costs a twentieth of ``numpy.errstate``. A context serves one
    thread at a time, so a second thread takes a copy of it.
    """

    def kernel(x: Any, y: Any = None, *more: Any) -> Any:
        values = (x,) if y is None else (x, y, *more)
        try:
            out = _run(function, *values)
        except RuntimeError:
            out = _QUIET.copy().run(function, *values)
        return out if type(out) is _ARRAY else np.asarray(out)

    def binary(x: Any, y: Any) -> Any:
        try:
            out = _run(function, x, y)
        except RuntimeError:
            out = _QUIET.copy().run(function, x, y)
        return out if type(out) is _ARRAY else np.asarray(out)

    return binary if getattr(function, "nin", 0) == 2 else kernel


def _random_bits(state: Any, shape: tuple[int, ...]) -> Any:
    """Philox4x32-10 in place: the rounds work on four columns and allocate nothing."""
    blocks = -(-prod(shape) // 4)
    mask, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    key = int(state[0])
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    place = np.arange(blocks, dtype=np.uint64) + state[1]
    x0, x1 = place & mask, place >> word
    x2, x3 = np.zeros_like(x0), np.zeros_like(x0)
    for _ in range(10):
        left, right = x0, x2
        left *= np.uint64(0xD2511F53)
        right *= np.uint64(0xCD9E8D57)
        y0, y2 = right >> word, left >> word
        y0 ^= x1
        y0 ^= np.uint64(k0)
        y2 ^= x3
        y2 ^= np.uint64(k1)
        right &= mask
        left &= mask
        x0, x1, x2, x3 = y0, right, y2, left
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    words = np.empty((blocks, 4), np.uint32)
    for column, x in enumerate((x0, x1, x2, x3)):
        words[:, column] = x
    return words.reshape(-1)[: prod(shape)].reshape(shape)


def _folded(name: str, ufunc: np.ufunc, general: Kernel) -> Kernel:
    """Reduce by the ufunc itself: NumPy's named functions spend more on small arrays than the work takes."""

    def prepare(call: Call) -> Callable[..., Any]:
        if call.dtypes[0] in _WIDENED and name in ("sum", "prod"):
            return general.prepare(call)  # type: ignore[misc]
        axis, keepdims, reduce = call.attrs["axis"], call.attrs["keepdims"], ufunc.reduce
        dtype = DTYPES[call.out_dtype] if name in ("sum", "prod") else None
        return quiet(lambda x: reduce(x, axis, dtype, None, keepdims))

    return Kernel(name=name, prepare=prepare)


def _table() -> KernelTable:
    table: dict[str, Any] = from_namespace(np, DTYPES, quiet)
    ufuncs = {
        "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
        "all": np.logical_and,
    }  # fmt: skip
    table |= {name: _folded(name, ufunc, table[name]) for name, ufunc in ufuncs.items()}
    return {**table, "random_bits": Kernel(name="random_bits", function=_random_bits)}


TABLE: Final = _table()
