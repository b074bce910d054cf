"""Large arrays along their axes: reductions, running sums and normalized rows, by ``csource/library.c``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, DType, dtypes

from .compiler import NATIVE
from .large import COSTLY, NARROW, Compiled, combining, packed, routine, serves
from .memory import DTYPES, empty, run

_LEAST, _BLOCK, _DEEP, _WANTED = 128, 1024, 4096, 16
"""Columns that a thread takes, least and most; rows that it adds up at most; parts that keep all busy."""
_LANES, _LONG, _SHARE = 256, 1 << 13, 1 << 18
"""Elements of the shortest row, and of the longest that is not cut; those worth waking a thread for.

Where there are many times as many, a thread takes a quarter at a time: then all end at the same moment."""
_BEATS: Final = "(!((best) {} (x)) && (best) == (best))"
_UFUNCS: Final = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def _block(
    shape: Sequence[int], strides: Sequence[int], itemsize: int, axes: Sequence[int]
) -> tuple[Sequence[int], tuple[int, int, int]] | None:
    """Return the axes in the order of memory, and how many elements there are as (outer, along them, inner).

    None where the array is not packed, or the axes are not side by side.
    """
    order = sorted(range(len(shape)), key=lambda k: -strides[k] if shape[k] > 1 else 0)
    packed = itemsize
    for k in reversed(order):
        if shape[k] > 1 and strides[k] != packed:
            return None
        packed *= shape[k]
    at = sorted(order.index(a) for a in axes if shape[a] > 1)
    if not at or at[-1] - at[0] >= len(at):
        return None
    lengths = [shape[k] for k in order]
    return order, (prod(lengths[: at[0]]), prod(lengths[at[0] : at[-1] + 1]), prod(lengths[at[-1] + 1 :]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How threads share a reduction: rows or columns, each in ``chunks`` that are put together later.

    ``shape`` is that of the parts; ``kept`` that of the result in the order of memory, and ``order`` the one
    that the op wants.
    """

    name: str
    params: tuple[int, ...]
    grid: tuple[int, ...]
    piece: tuple[int, ...]
    shape: tuple[int, ...]
    kept: tuple[int, ...]
    order: tuple[int, ...]

    def filling(self, name: str, count: int, *types_and_macros: Any) -> Callable[..., None]:
        """Return what fills the arrays after the first by the routine for rows or for columns."""
        name += self.name
        made = routine(name, *types_and_macros)
        return made.prepared(name, count, self.params, self.grid, self.piece)

    def finish(self, out: Any, call: Call) -> Any:
        """Return a result over the axes that are kept in the shape that the op gives it."""
        if len(self.kept) < 2:
            return out.reshape(call.out_shape)
        return out.reshape(self.kept).transpose(self.order).reshape(call.out_shape)


def shares(shape: Sequence[int], strides: Sequence[int], itemsize: int, axes: Sequence[int]) -> Shares | None:
    """Return how to share a reduction; None where its rows or columns are short or not packed.

    Results do not depend on the number of threads, so neither does this.
    """
    found = _block(shape, strides, itemsize, axes)
    if found is None:
        return None
    order, (outer, n, inner) = found
    grid: tuple[int, ...]
    piece: tuple[int, ...]
    many = n * inner * outer // _SHARE
    wanted, share = max(min(many, _WANTED), 1), _SHARE if many < _WANTED else _SHARE // 4
    if inner == 1 and n >= _LANES:
        name, chunks = "_row", max(min(-(-wanted // outer), n // _DEEP), -(-n // _LONG), 1)
        grid, piece = (chunks, outer), (max(share * chunks // n, 1), max(share // n, 1))
    elif inner >= 16:
        name, (columns, chunks) = "_column", _cut(n, inner, outer, wanted)
        grid, piece = (inner, chunks, outer), (columns, 1, 1)
    else:
        return None
    left = [k for k in order if k not in axes]
    return Shares(
        name=name, params=(n, inner, chunks), grid=grid, piece=piece, shape=(outer, chunks, inner),
        kept=tuple(shape[k] for k in left), order=tuple(left.index(k) for k in sorted(left)),
    )  # fmt: skip


def _cut(n: int, width: int, outer: int, wanted: int) -> tuple[int, int]:
    """Return the columns that a thread takes and the number of chunks."""
    piece = min(_BLOCK, width)
    parts = -(-width // piece) * outer
    chunks = max(min(-(-4 * wanted // parts), n // 64), -(-n // _DEEP), 1)
    if parts * chunks < wanted:  # few rows: whole ones would leave threads idle
        piece = min(max(-(-width * outer * chunks // wanted), _LEAST), piece)
    return piece, chunks


def _quick(op: str, acc: DType) -> tuple[str, ...]:
    """Return the macro that says how to combine floats where there is no NaN."""
    sign = {"max": ">", "min": "<"}.get(op)
    return (f"QUICK(a, x) ((a) {sign} (x) ? (a) : (x))",) if sign and acc.is_floating else ()


def fold(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a sum, product, maximum or minimum."""
    given, out_dtype, axes = call.dtypes[0], call.out_dtype, call.attrs["axis"]
    acc = dtypes.float32 if out_dtype in NARROW else out_dtype
    generated, reduce = Compiled(call, otherwise), _UFUNCS[call.op].reduce
    macros = (combining(call.op), *_quick(call.op, acc))
    if not serves(call):
        return otherwise

    @lru_cache(64)
    def ready(shape: Sequence[int], strides: Sequence[int]) -> Any:
        how = shares(shape, strides, DTYPES[given].itemsize, axes)
        if how is None:
            return None
        kept = acc if how.shape[1] > 1 else out_dtype
        return how, DTYPES[kept], how.filling("fold", 2, given, kept, *macros)

    def large(x: Any) -> Any:
        found = ready(x.shape, x.strides) if x.flags.aligned else None
        if found is None:
            return generated(x)
        how, dtype, fill = found
        out = empty(how.shape, dtype)
        fill(x, out)
        if how.shape[1] > 1:
            out = run(reduce, out, 1, out.dtype).astype(DTYPES[out_dtype], copy=False)
        return how.finish(out, call)

    return large


def best(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of an argmax or argmin."""
    given, axes = call.dtypes[0], call.attrs["axis"]
    beats = "BEATS(x, best) " + _BEATS.format(">=" if call.op == "argmax" else "<=")
    choose = np.argmax if call.op == "argmax" else np.argmin
    if not serves(call):
        return otherwise

    @lru_cache(64)
    def ready(shape: Sequence[int], strides: Sequence[int]) -> Any:
        how = shares(shape, strides, DTYPES[given].itemsize, axes)
        return how and (how, how.filling("best", 3, given, given, beats))

    def large(x: Any) -> Any:
        found = ready(x.shape, x.strides) if x.flags.aligned else None
        if found is None or found[0].params[0] >= 1 << 31:
            return otherwise(x)
        how, fill = found
        values, places = (empty(how.shape, d) for d in (x.dtype, np.int64))
        fill(x, values, places)
        if how.shape[1] > 1:
            places = np.take_along_axis(places, choose(values, axis=1, keepdims=True), axis=1)
        return how.finish(places, call)

    return large


def scan(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a running sum."""
    axis = call.attrs["axis"]
    generated = Compiled(call, otherwise)
    if not serves(call):
        return otherwise

    def large(x: Any) -> Any:
        outer, n, inner = prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :])
        if not (x.flags.c_contiguous and x.flags.aligned) or outer * inner < 256 or inner < 16:
            return generated(x)
        out = empty(x.shape, DTYPES[call.out_dtype])
        piece = min(max(-(-inner * outer // _WANTED), _LEAST), _BLOCK, inner)
        made = routine("scan_column", call.dtypes[0], call.out_dtype)
        made.run("scan_column", (x, out), (n, inner), (inner, outer), (piece, 1))
        return out

    return large


def rows(call: Call) -> Callable[..., Any]:
    """Return the kernel of a softmax, its logarithm, or a standardization, each row in one go."""
    given, shape = call.dtypes[0], call.shapes
    assert shape is not None
    rank = call.attrs.get("rank", 1)
    n = prod(shape[0][len(shape[0]) - rank :])
    count = prod(shape[0]) // n
    params = (n, call.attrs.get("eps", 0.0))
    suffix = "f" if given is dtypes.float32 else ""
    macros = [f"{name.upper()} {name}{suffix}" for name in ("exp", "log", "sqrt")]
    macros += ["LOGARITHM"] if call.op == "log_softmax" else []
    name = call.op.removeprefix("log_")
    piece = (max(count // 64, 1),)

    def large(x: Any) -> Any:
        out = empty(x.shape, x.dtype)
        routine(name, given, given, *macros).run(name, (packed(x), out), params, (count,), piece)
        return out

    return large


def takes_rows(call: Call) -> bool | str:
    """Say whether ``rows`` serves a call: many long enough rows, along the last axes."""
    assert call.shapes is not None
    (shape,) = call.shapes
    rank = call.attrs.get("rank", 1)
    if call.dtypes[0] not in (dtypes.float32, dtypes.float64):
        return "float32 and float64 only"
    if "axis" in call.attrs and call.attrs["axis"] != len(shape) - 1:
        return "the last axis only"
    n = prod(shape[len(shape) - rank :])
    if prod(shape) < COSTLY or n < 16 or prod(shape) // n < _WANTED:
        return f"{_WANTED} rows of 16 elements and {COSTLY} in all at least"
    return True if NATIVE.compiler() is not None else NATIVE.reason
