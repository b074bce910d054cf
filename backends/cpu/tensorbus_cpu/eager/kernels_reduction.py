"""Large arrays along their axes: reductions, running sums and normalized rows, by ``csource/library.c``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, DeviceError, DType, Kernel, dtypes

from ..compiler import NATIVE
from ..memory import DTYPES, empty
from ..native.kernel_entry import pieces
from .candidates import half_reduced_size, native_first, operand_size, reduced_size, scanned_size
from .eager_launch import Launches
from .kernels_native import COMPUTE_BOUND_SIZE, NARROW, GeneratedKernel, combining, packed, routine, serves
from .row_stable_sum import row_stable

_MIN_COLUMNS, _MAX_COLUMNS, _MAX_ROWS, _WANTED_PARTS = 128, 1024, 4096, 16
"""Columns that a thread takes, least and most; rows that it adds up at most; parts that keep all busy."""
_MIN_ROW, _MAX_UNCUT_ROW, _THREAD_MIN_SIZE, _THREAD_MIN_PARTS = 256, 1 << 13, 1 << 18, 1 << 14
"""Elements of the shortest row and of the longest that is not cut; those and parts worth waking a thread for.

Where there are many times as many, a thread takes a quarter at a time: then all end at the same moment."""
_BEATS: Final = "(!((best) {} (x)) && (best) == (best))"


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
    """The shares of threads in a reduction: rows or columns, each in ``chunks`` that are put together later.

    ``axes`` are those of the array in the order of memory. ``shape`` is that of the parts; ``outer`` that of
    the result in the order of memory, and ``order`` the one that the op wants.
    """

    name: str
    axes: tuple[int, ...]
    params: tuple[int, ...]
    grid: tuple[int, ...]
    piece: tuple[int, ...]
    shape: tuple[int, ...]
    outer: tuple[int, ...]
    order: tuple[int, ...]

    def filling(self, name: str, count: int, *types_and_macros: Any) -> Callable[..., None]:
        """Return what fills the arrays after the first by the routine for rows or for columns."""
        name += self.name
        native = routine(name, *types_and_macros)
        return native.prepared(name, count, self.params, self.grid, self.piece)

    def finish(self, out: Any, call: Call) -> Any:
        """Return a result over the axes that are kept in the shape that the op gives it."""
        if len(self.outer) < 2:
            return out.reshape(call.out_shape)
        return out.reshape(self.outer).transpose(self.order).reshape(call.out_shape)


def shares(shape: Sequence[int], strides: Sequence[int], itemsize: int, axes: Sequence[int]) -> Shares | None:
    """Return how to share a reduction; None where its rows or columns are short or not packed.

    Results do not depend on the number of threads, so neither does this.
    """
    block = _block(shape, strides, itemsize, axes)
    if block is None:
        return None
    order, (outer, n, inner) = block
    grid: tuple[int, ...]
    piece: tuple[int, ...]
    many = n * inner * outer // _THREAD_MIN_SIZE
    target = max(min(many, _WANTED_PARTS), 1)
    share = _THREAD_MIN_SIZE if many < _WANTED_PARTS else _THREAD_MIN_SIZE // 4
    if inner == 1 and n >= _MIN_ROW:
        name, chunks = "_row", max(min(-(-target // outer), n // _MAX_ROWS), -(-n // _MAX_UNCUT_ROW), 1)
        grid, piece = (chunks, outer), (max(share * chunks // n, 1), max(share // n, 1))
    elif inner >= 16:
        name, (columns, chunks) = "_column", _cut(n, inner, outer, target)
        grid, piece = (inner, chunks, outer), (columns, 1, 1)
    else:
        return None
    left = [k for k in order if k not in axes]
    return Shares(
        name=name, axes=tuple(order), params=(n, inner, chunks), grid=grid, piece=piece,
        shape=(outer, chunks, inner), outer=tuple(shape[k] for k in left),
        order=tuple(left.index(k) for k in sorted(left)),
    )  # fmt: skip


def _cut(n: int, width: int, outer: int, target: int) -> tuple[int, int]:
    """Return the columns that a thread takes and the number of chunks."""
    piece = min(_MAX_COLUMNS, width)
    parts = -(-width // piece) * outer
    chunks = max(min(-(-4 * target // parts), n // 64), -(-n // _MAX_ROWS), 1)
    if parts * chunks < target:  # few rows: whole ones would leave threads idle
        piece = min(max(-(-width * outer * chunks // target), _MIN_COLUMNS), piece)
    return piece, chunks


def _quick(op: str, acc: DType) -> tuple[str, ...]:
    """Return the macro that says how to combine floats where there is no NaN."""
    sign = {"max": ">", "min": "<"}.get(op)
    return (f"QUICK(a, x) ((a) {sign} (x) ? (a) : (x))",) if sign and acc.is_floating else ()


def fold(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a sum, product, maximum or minimum."""
    dtype, axes, generated = call.dtypes[0], call.attrs["axis"], GeneratedKernel(call, otherwise)
    assert call.shapes is not None
    if not serves(call):
        return otherwise

    @lru_cache(64)
    def ready(shape: Sequence[int], strides: Sequence[int]) -> Any:
        how = shares(shape, strides, DTYPES[dtype].itemsize, axes)
        if how is None:
            return None
        return how, _folding(call, how, how.outer).function(_refuse)

    def any_layout(x: Any) -> Any:
        prepared = ready(x.shape, x.strides) if x.flags.aligned else None
        if prepared is None:
            return generated(x)
        how, function = prepared
        return how.finish(function(x.transpose(how.axes)), call)

    (shape,) = call.shapes
    strides = [DTYPES[dtype].itemsize * prod(shape[k + 1 :]) for k in range(len(shape))]
    how = shares(shape, strides, DTYPES[dtype].itemsize, axes)
    assert call.out_shape is not None
    return any_layout if how is None else _folding(call, how, call.out_shape).function(any_layout)


def _refuse(*values: Any) -> Any:
    raise DeviceError("cpu: an array that was found to be packed is not")


def _folding(call: Call, how: Shares, shape: tuple[int, ...]) -> Launches:
    """Return the launches that fold an array in the order of memory into a result of this ``shape``."""
    dtype, out = call.dtypes[0], call.out_dtype
    acc = dtypes.float32 if out in NARROW else out
    macros = (combining(call.op), *_quick(call.op, acc))
    outer, chunks, inner = how.shape
    name = f"fold{how.name}"
    launches = Launches(1, (DTYPES[out], shape))
    parts = 1 if chunks == 1 else launches.scratch(outer * chunks * inner * acc.itemsize)
    native = routine(name, dtype, out if chunks == 1 else acc, *macros)
    launches.add(native.launch(name, (0, parts), how.params, how.grid, how.piece))
    if chunks == 1:
        return launches
    name = "fold_row" if inner == 1 and chunks >= _MIN_ROW // acc.itemsize else "fold_column"
    grid = (1, outer) if name == "fold_row" else (inner, 1, outer)
    piece = pieces(grid, max(_THREAD_MIN_PARTS // chunks, 1))
    native = routine(name, acc, out, *macros)
    launches.add(native.launch(name, (parts, 1), (chunks, inner, 1), grid, piece))
    return launches


def best(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of an argmax or argmin."""
    dtype, axes = call.dtypes[0], call.attrs["axis"]
    beats = "BEATS(x, best) " + _BEATS.format(">=" if call.op == "argmax" else "<=")
    choose = np.argmax if call.op == "argmax" else np.argmin
    if not serves(call):
        return otherwise

    @lru_cache(64)
    def ready(shape: Sequence[int], strides: Sequence[int]) -> Any:
        how = shares(shape, strides, DTYPES[dtype].itemsize, axes)
        return how and (how, how.filling("best", 3, dtype, dtype, beats))

    def large(x: Any) -> Any:
        prepared = ready(x.shape, x.strides) if x.flags.aligned else None
        if prepared is None or prepared[0].params[0] >= 1 << 31:
            return otherwise(x)
        how, fill = prepared
        values, places = (empty(how.shape, d) for d in (x.dtype, np.int64))
        fill(x, values, places)
        if how.shape[1] > 1:
            places = np.take_along_axis(places, choose(values, axis=1, keepdims=True), axis=1)
        return how.finish(places, call)

    return large


def scan(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a running sum."""
    axis, generated = call.attrs["axis"], GeneratedKernel(call, otherwise)
    assert call.shapes is not None
    (shape,) = call.shapes
    outer, n, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    if not serves(call):
        return otherwise
    if outer * inner < 256 or inner < 16:
        return generated
    piece = min(max(-(-inner * outer // _WANTED_PARTS), _MIN_COLUMNS), _MAX_COLUMNS, inner)
    native = routine("scan_column", call.dtypes[0], call.out_dtype)
    launches = Launches(1, (DTYPES[call.out_dtype], shape))
    launches.add(native.launch("scan_column", (0, 1), (n, inner), (inner, outer), (piece, 1)))
    return launches.function(generated)


def rows(call: Call) -> Callable[..., Any]:
    """Return the kernel of a softmax, its logarithm, or a standardization, each row in one go."""
    dtype, shape = call.dtypes[0], call.shapes
    assert shape is not None
    rank = call.attrs.get("rank", 1)
    n = prod(shape[0][len(shape[0]) - rank :])
    count = prod(shape[0]) // n
    params = (n, call.attrs.get("eps", 0.0))
    suffix = "f" if dtype is dtypes.float32 else ""
    macros = [f"{name.upper()} {name}{suffix}" for name in ("exp", "log", "sqrt")]
    macros += ["LOGARITHM"] if call.op == "log_softmax" else []
    name = call.op.removeprefix("log_")
    launches = Launches(1, (DTYPES[dtype], shape[0]))
    step = routine(name, dtype, dtype, *macros).launch(name, (0, 1), params, (count,), (max(count // 64, 1),))
    launches.add(step)
    return launches.repacking(packed)


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
    if prod(shape) < COMPUTE_BOUND_SIZE or n < 16 or prod(shape) // n < _WANTED_PARTS:
        return f"{_WANTED_PARTS} rows of 16 elements and {COMPUTE_BOUND_SIZE} in all at least"
    return True if NATIVE.compiler() is not None else NATIVE.reason


def reduction_kernels(numpy: Mapping[str, Kernel]) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of reductions, scans and normalized rows."""
    rows_first = Kernel(name="generated", prepare=rows, supports=takes_rows)
    return {
        **{op: native_first(numpy[op], fold, half_reduced_size) for op in ("max", "min")},
        **{op: native_first(numpy[op], best, half_reduced_size) for op in ("argmax", "argmin")},
        **{op: native_first(numpy[op], GeneratedKernel, reduced_size) for op in ("any", "all")},
        **{
            op: (row_stable(numpy[op]), *native_first(numpy[op], fold, operand_size))
            for op in ("sum", "prod")
        },
        "cumulative_sum": native_first(numpy["cumulative_sum"], scan, scanned_size),
        "cumulative_prod": native_first(numpy["cumulative_prod"], GeneratedKernel, scanned_size),
        **dict.fromkeys(("softmax", "log_softmax", "standardize"), (rows_first,)),
    }
