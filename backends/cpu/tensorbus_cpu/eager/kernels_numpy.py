"""NumPy's functions as kernels: what every op of the table has, whatever the size of its operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, Kernel, dtypes, from_namespace

from ..memory import DTYPES, fast_run, run

_ARRAY: Final = np.ndarray
_BYTES: Final = frozenset(DTYPES[d] for d in (dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2))
_WIDENED: Final = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2})
_UFUNCS: Final = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
    "all": np.logical_and,
}  # fmt: skip
Shape = tuple[int, ...]


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call ``function`` in the context of ``memory.run``; make an array of a scalar that it returns."""

    def unary(x: Any) -> Any:
        try:
            out = fast_run(function, x)
        except RuntimeError:
            out = run(function, x)
        return out if type(out) is _ARRAY else np.asarray(out)

    def binary(x: Any, y: Any) -> Any:
        try:
            out = fast_run(function, x, y)
        except RuntimeError:
            out = run(function, x, y)
        return out if type(out) is _ARRAY else np.asarray(out)

    def kernel(*values: Any) -> Any:
        out = run(function, *values)
        return out if type(out) is _ARRAY else np.asarray(out)

    arity = getattr(function, "nin", 0)
    wrapped = unary if arity == 1 else binary if arity == 2 else kernel
    wrapped.__dict__["__wrapped__"] = function
    return wrapped


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


def _reduced(name: str, ufunc: np.ufunc, general: Kernel) -> Kernel:
    """Return the kernel of a reduction by the ufunc itself.

    NumPy's named functions spend more on small arrays than the work takes.
    """

    def prepare(call: Call) -> Callable[..., Any]:
        if call.dtypes[0] in _WIDENED and name in ("sum", "prod"):
            return general.prepare(call)  # type: ignore[misc]
        axis, keepdims = call.attrs["axis"], call.attrs["keepdims"]
        reduce: Callable[..., Any] = ufunc.reduce
        dtype = DTYPES[call.out_dtype] if name in ("sum", "prod") else None
        return quiet(lambda x: reduce(x, axis, dtype, None, keepdims))

    return Kernel(name=general.name, prepare=prepare)


def _by_bits(move: Callable[..., Any]) -> Callable[..., Any]:
    """Move elements of the small floats as integers: NumPy's helpers do not know how to describe them."""

    def kernel(x: Any, **attrs: Any) -> Any:
        if x.dtype not in _BYTES:
            return move(x, **attrs)
        return move(x.view(f"u{x.dtype.itemsize}"), **attrs).view(x.dtype)

    return kernel


def _diagonal(x: Any, offset: int) -> Any:
    view = np.diagonal(x, offset, -2, -1)
    view.flags.writeable = x.flags.writeable  # NumPy's is not, for what it may return one day
    return view


def _as_complex(x: Any) -> Any:
    if x.size and x.strides[-1] != x.itemsize:  # no dtype has its parts elsewhere than side by side
        x = x.copy()
    return x.view(np.result_type(x.dtype, np.complex64))[..., 0]


def _pooled(kernel: Kernel) -> Kernel:
    """Return the kernel of a function whose memory comes from the pool: new pages take longer than copies."""
    function = kernel.function
    assert function is not None
    return replace(kernel, function=lambda *values, **attrs: run(partial(function, *values, **attrs)))


def numpy_kernels() -> dict[str, Kernel]:
    """Return NumPy's kernel of every op that it has, by name."""
    table = {name: _kernel(name, entry) for name, entry in from_namespace(np, DTYPES, quiet).items()}
    table |= {name: _reduced(name, ufunc, table[name]) for name, ufunc in _UFUNCS.items()}
    table["fmod"] = replace(table["hypot"], name="fmod", prepare=lambda call: quiet(np.fmod))
    table["flip"] = Kernel(name="flip", function=lambda x, axis: np.array(np.flip(x, axis), order="C"))
    table |= {name: _pooled(table[name]) for name in ("concat", "slice_update")}
    table |= {
        "diagonal": Kernel(name="view", function=_diagonal),
        "view_as_real": Kernel(name="view", function=lambda x: x[..., None].view(x.real.dtype)),
        "view_as_complex": Kernel(name="view", function=_as_complex),
    }
    windows = table["windows"].function
    assert windows is not None
    table["windows"] = Kernel(name="windows", function=_by_bits(windows))
    table["max_pool"] = Kernel(name="max_pool", prepare=lambda call: quiet(partial(_max_pool, **call.attrs)))
    return table


def _kernel(name: str, entry: Callable[..., Any] | Kernel) -> Kernel:
    return entry if isinstance(entry, Kernel) else Kernel(name=name, function=entry)


def prepared(kernel: Kernel, call: Call) -> Callable[..., Any]:
    """Return what runs a call by a kernel."""
    if kernel.prepare is not None:
        return kernel.prepare(call)
    assert kernel.function is not None
    return partial(kernel.function, **call.attrs)
