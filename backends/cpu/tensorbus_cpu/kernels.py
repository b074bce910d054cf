"""The eager table: NumPy's own functions, then what NumPy lacks."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, Kernel, KernelTable, dtypes, from_namespace

from .memory import DTYPES

_QUIET: Final = contextvars.copy_context()
_QUIET.run(np.seterr, all="ignore")
_run = _QUIET.run
_ARRAY = np.ndarray
Shape = tuple[int, ...]
_SMALL: Final = frozenset(DTYPES[d] for d in (dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2))
_WIDENED: Final = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2})


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call ``function`` with NumPy's floating-point warnings off; make an array of a scalar that it returns.

    Running in a context that was prepared once costs a twentieth of ``numpy.errstate``. A context serves one
    thread at a time, so a second thread takes a copy of it.
    """

    def unary(x: Any) -> Any:
        try:
            out = _run(function, x)
        except RuntimeError:
            out = _QUIET.copy().run(function, x)
        return out if type(out) is _ARRAY else np.asarray(out)

    def binary(x: Any, y: Any) -> Any:
        try:
            out = _run(function, x, y)
        except RuntimeError:
            out = _QUIET.copy().run(function, x, y)
        return out if type(out) is _ARRAY else np.asarray(out)

    def kernel(*values: Any) -> Any:
        try:
            out = _run(function, *values)
        except RuntimeError:
            out = _QUIET.copy().run(function, *values)
        return out if type(out) is _ARRAY else np.asarray(out)

    arity = getattr(function, "nin", 0)
    return unary if arity == 1 else binary if arity == 2 else kernel


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


def _max_pool(x: Any, size: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Any:
    """Take the maximum of strided boxes, one for each place of a window: NumPy is slow on short axes."""
    rank = len(size)
    if any(padding):
        finite = x.dtype == DTYPES[dtypes.float8_e4m3fn]  # it has no infinities
        lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -448.0 if finite else -np.inf
        edges = ((0, 0),) * (x.ndim - rank) + tuple((p, p) for p in padding)
        x = np.pad(x, edges, constant_values=lowest)
    space = zip(x.shape[-rank:], size, stride, dilation, strict=True)
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in space]
    out = None
    for place in np.ndindex(*size):
        starts = [a * d for a, d in zip(place, dilation, strict=True)]
        box = x[
            (..., *(slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(starts, counts, stride, strict=True)))
        ]
        out = box.copy() if out is None else np.maximum(out, box, out=out)
    return out


def _folded(name: str, ufunc: np.ufunc, general: Kernel) -> Kernel:
    """Reduce by the ufunc itself: NumPy's named functions spend more on small arrays than the work takes."""

    def prepare(call: Call) -> Callable[..., Any]:
        if call.dtypes[0] in _WIDENED and name in ("sum", "prod"):
            return general.prepare(call)  # type: ignore[misc]
        axis, keepdims = call.attrs["axis"], call.attrs["keepdims"]
        reduce: Callable[..., Any] = ufunc.reduce
        dtype = DTYPES[call.out_dtype] if name in ("sum", "prod") else None
        return quiet(lambda x: reduce(x, axis, dtype, None, keepdims))

    return Kernel(name=name, prepare=prepare)


def _by_bits(move: Callable[..., Any]) -> Callable[..., Any]:
    """Move elements of the small floats as integers: NumPy's helpers do not know how to describe them."""

    def kernel(x: Any, **attrs: Any) -> Any:
        if x.dtype not in _SMALL:
            return move(x, **attrs)
        return move(x.view(f"u{x.dtype.itemsize}"), **attrs).view(x.dtype)

    return kernel


def _table() -> KernelTable:
    table: dict[str, Any] = from_namespace(np, DTYPES, quiet)
    ufuncs = {
        "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
        "all": np.logical_and,
    }  # fmt: skip
    table |= {name: _folded(name, ufunc, table[name]) for name, ufunc in ufuncs.items()}
    table["windows"] = _by_bits(table["windows"])
    pool = Kernel(name="max_pool", prepare=lambda call: quiet(partial(_max_pool, **call.attrs)))
    return {**table, "random_bits": _random_bits, "max_pool": pool}


TABLE: Final = _table()
