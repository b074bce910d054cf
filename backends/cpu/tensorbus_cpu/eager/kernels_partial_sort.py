"""Places of some elements in order, the others unsorted: ``csource/select.c``, or NumPy's partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, Kernel, dtypes

from ..compiler import NATIVE
from ..memory import DTYPES, empty, run
from ..native.kernel_entry import pieces
from .candidates import costly_size, native_first, operand_size, prepare_first
from .kernels_native import NARROW, argsort, in_threads, is_covered, packed, routine, serves, sort

_FULL_SORT_MAX: Final = 1 << 10
"""Up to how many elements sorting them all is as fast."""
_HEAP_MAX: Final = 128
_HEAP_DIVISOR: Final = 16
"""A heap keeps up to so many elements, and no more than one of so many."""
_PARTITION_MIN_LENGTH: Final = 1 << 13
"""From which length on rows are worth a partition each."""
_THREAD_MIN_SIZE: Final = 1 << 15
"""Elements of a row that are worth a thread's while."""


def ordering_kernels(numpy: Mapping[str, Kernel]) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of sorts, of whole rows and of some places."""
    whole = native_first(numpy["argsort"], argsort, costly_size)
    return {
        "sort": native_first(numpy["sort"], sort, operand_size),
        "argsort": whole,
        "argsort_part": (_selection(whole),),
    }


def _selection(whole_order: Sequence[Kernel]) -> Kernel:
    """Return the kernel of ``argsort_part``; ``whole_order`` are the candidates for the whole order."""

    def prepare(call: Call) -> Callable[[Any], Any]:
        assert call.shapes is not None
        axis, start, count = (call.attrs[name] for name in ("axis", "start", "count"))
        descending, shape = call.attrs["descending"], call.shapes[0]
        attrs = {"axis": axis, "descending": descending, "stable": True}
        whole = prepare_first(whole_order, replace(call, op="argsort", attrs=attrs, out_shape=shape))
        box = (slice(None),) * axis + (slice(start, start + count),)
        stop, n = start + count, shape[axis]
        if (
            not count
            or prod(shape) <= _FULL_SORT_MAX
            or stop == n
            or not is_covered(call)
            or not serves(call)
        ):
            return lambda x: whole(x)[box]
        if stop <= min(_HEAP_MAX, n // _HEAP_DIVISOR):
            first: Callable[[Any], Any] = partial(_by_heaps, call=call, stop=stop)
        elif n >= _PARTITION_MIN_LENGTH:
            first = partial(_by_partitions, start=start, stop=stop, descending=descending)
        else:
            return lambda x: whole(x)[box]

        def select(x: Any) -> Any:
            rows = packed(np.moveaxis(x, axis, -1))
            places = first(rows.reshape(-1, n))[:, start:stop]
            return np.moveaxis(places.reshape(*rows.shape[:-1], count), -1, axis)

        return select

    return Kernel(name="selection", prepare=prepare)


def _by_heaps(rows: Any, *, call: Call, stop: int) -> Any:
    dtype, (count, n) = call.dtypes[0], rows.shape
    sign = ">" if call.attrs["descending"] else "<"
    unordered = "(x) != (x) && (y) == (y)" if sign == ">" else "(y) != (y) && (x) == (x)"
    before = f"BEFORE(x, y) ((x) {sign} (y) || ({unordered}))"
    heaps = routine("select", dtype, dtype, before, source="select")
    parts = max(min(n // max(_THREAD_MIN_SIZE, 4 * stop), -(-4 * NATIVE.threads // count)), 1)
    wide = DTYPES[dtypes.float32 if dtype in NARROW else dtype]
    values, places = empty((count, parts, stop), wide), empty((count, parts, stop), np.int64)
    grid = (parts, count)
    piece = (1, 1) if n >= _THREAD_MIN_SIZE else pieces(grid, max(_THREAD_MIN_SIZE // n, 1))
    heaps.run("first", (rows, values, places), (n, stop, parts), grid, piece)
    if parts == 1:
        return places[:, 0]
    out = empty((count, stop), np.int64)
    heaps.run("join", (values, places, out), (stop, parts), (count,), (1,))
    return out


def _by_partitions(rows: Any, *, start: int, stop: int, descending: bool) -> Any:
    out = empty((len(rows), stop), np.int64)
    order = _first_descending if descending else _first_ascending

    def fill(k: int) -> None:
        row = rows[k]
        row = row.astype(np.float32) if row.dtype == DTYPES[dtypes.bfloat16] else row
        run(order, row, start, out[k])

    in_threads(fill, range(len(rows)))
    return out


def _first_ascending(row: Any, start: int, out: Any) -> None:
    """Put the places of elements number ``start`` on there; what is before them is not wanted."""
    stop = len(out)
    ends = np.partition(row, (start, stop - 1) if stop - 1 > start else start)
    low, high = ends[start], ends[stop - 1]
    if high != high:  # NaN is behind all numbers
        out[:] = np.argsort(row, stable=True)[:stop]
        return
    between = np.flatnonzero((row >= low) & (row <= high))
    before = int(np.count_nonzero(row < low))
    order = between[np.argsort(row[between], stable=True)]
    out[start:] = order[start - before : stop - before]


def _first_descending(row: Any, start: int, out: Any) -> None:
    stop, n = len(out), len(row)
    low = np.partition(row, n - stop)[n - stop]
    candidates = np.flatnonzero(~(row < low) if low == low else row != row)
    last = np.argsort(row[candidates][::-1], stable=True)  # backwards, so that equal ones come in their order
    out[:] = candidates[::-1][last][::-1][:stop]
