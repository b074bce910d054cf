"""Sums and products of floats along axes, whose last bits depend on the row that is added up alone.

How many rows there are, how they lie and who adds them changes nothing, so that a batch gives what its parts
give. The order is NumPy's for contiguous rows, pairwise in sums, one after another in products: NumPy itself
serves what is small and lies so, ``csource/row_stable_sum.c`` what is large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, Kernel, dtypes

from ..compiler import NATIVE
from ..memory import DTYPES, address, empty, run
from .eager_launch import Launch, Launches, slots
from .kernels_native import MEMORY_BOUND_SIZE, NARROW, SLOW_IN_NUMPY_SIZE, is_covered, packed, routine, serves
from .kernels_numpy import prepared

SEQUENTIAL_SUM_LENGTH: Final = 8
"""Rows of fewer elements are added one after another, by NumPy in every layout."""
SEQUENTIAL_PRODUCT_LENGTH: Final = 1024
"""Factors of a product one after another; a longer row is several products, which are multiplied."""
NUMPY_TRANSPOSE_SIZE: Final = 1024
"""Elements up to which turning an array, so that NumPy adds contiguous rows, beats a launch."""
NUMPY_FIRST_CALLS: Final = 64
"""Calls of a kind on light arrays that NumPy serves before C is compiled for them: most programs make few."""
_MAX_AXES: Final = 3
"""Axes that a kernel loops over."""
_MIN_THREAD_ELEMENTS: Final = 1 << 18
"""Elements worth waking a thread for."""
_MIN_PIECES: Final = 16
"""Pieces that keep all threads busy."""
_COLUMN_BLOCK_BYTES: Final = 4096
"""Bytes of a line of columns."""
_MIN_THREAD_COLUMNS: Final = 16
"""Columns that a thread takes at least."""
_MIN_SUM_LENGTH: Final = 128
"""Elements of a sum that is not cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReductionLayout:
    """Lengths and strides, in elements, of the axes that are reduced and kept, in the order of memory.

    ``columns`` lie side by side, and the reduced axes across them; 0 where rows are reduced along memory.
    ``left`` are the kept axes in the order of memory.
    """

    added: tuple[tuple[int, int], ...]
    outer: tuple[tuple[int, int], ...]
    columns: int
    left: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of elements of a row."""
        return prod(n for n, _ in self.added)

    @property
    def rows(self) -> int:
        """The number of rows, or of rows of columns."""
        return prod(n for n, _ in self.outer)

    def params(self, parts: int) -> tuple[int, ...]:
        """Return the parameters of ``csource/row_stable_sum.c``."""
        (_, m, n), across = _padded_axes(self.added)
        (_, k, r), down = _padded_axes(self.outer)
        return (self.count, parts, m, n, *across, k, r, *down, self.rows, max(self.columns, 1))

    def finish(self, out: Any, shape: Sequence[int], call: Call) -> Any:
        """Return a result over the axes that are kept in the shape that the op gives it."""
        if len(self.left) > 1:
            order = [self.left.index(k) for k in sorted(self.left)]
            out = out.reshape([shape[k] for k in self.left]).transpose(order)
        return out.reshape(call.out_shape)


def _padded_axes(axes: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    padded = [(1, 0)] * (_MAX_AXES - len(axes)) + list(axes)
    return tuple(n for n, _ in padded), tuple(s for _, s in padded)


def reduction_layout(
    shape: Sequence[int], strides: Sequence[int], itemsize: int, axes: Sequence[int]
) -> ReductionLayout | None:
    """Return how to reduce an array over ``axes``; None where there are too many that lie apart."""
    order = sorted(range(len(shape)), key=lambda k: -abs(strides[k]))
    runs: list[tuple[bool, int, int]] = []
    for k in order:
        if shape[k] == 1:
            continue
        step, rest = divmod(strides[k], itemsize)
        if rest:
            return None
        if runs and runs[-1][0] == (k in axes) and runs[-1][2] == shape[k] * step:
            runs[-1] = (runs[-1][0], runs[-1][1] * shape[k], step)
        else:
            runs.append((k in axes, shape[k], step))
    columns = runs.pop()[1] if runs and not runs[-1][0] and runs[-1][2] == 1 else 0
    added, outer = ([(n, step) for own, n, step in runs if own is which] for which in (True, False))
    if max(len(added), len(outer)) > _MAX_AXES:
        return None
    left = tuple(k for k in order if k not in axes)
    return ReductionLayout(added=tuple(added), outer=tuple(outer), columns=columns, left=left)


def row_stable(numpy: Kernel) -> Kernel:
    """Return the kernel of a sum or product of floats, in an order that depends on a row alone."""

    def prepare(call: Call) -> Callable[..., Any]:
        return (
            complex_sum(call) if call.dtypes[0].is_complex else float_reduction(call, prepared(numpy, call))
        )

    def supports(call: Call) -> bool | str:
        dtype = call.dtypes[0]
        served = dtype.is_floating or (dtype.is_complex and call.op == "sum")
        return served or "floats, and sums of complex numbers, only"

    return Kernel(name="row_stable", prepare=prepare, supports=supports)


def float_reduction(call: Call, numpy: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a sum or product of floats; ``numpy`` is NumPy's, which adds in its own order."""
    assert call.shapes is not None
    (shape,), axes = call.shapes, call.attrs["axis"]
    size, n = prod(shape), prod(shape[a] for a in axes)
    if size == 0 or n == 1 or NATIVE.tools() is None:
        return numpy
    transposed = _transposed(call)
    if not is_covered(call):
        return transposed
    numpy_order = _numpy_order(call.op, shape, axes, n)
    many = SLOW_IN_NUMPY_SIZE if call.dtypes[0] in NARROW else MEMORY_BOUND_SIZE
    if size < many and numpy_order == "always":
        return numpy
    if size < (many if call.op == "prod" else NUMPY_TRANSPOSE_SIZE):
        return _by_contiguity(numpy, transposed) if numpy_order else transposed
    if size < many:
        return (
            _by_contiguity(numpy, _numpy_then_native(call, transposed))
            if numpy_order
            else _numpy_then_native(call, transposed)
        )
    return _native(call) if serves(call) else numpy


def complex_sum(call: Call) -> Callable[..., Any]:
    """Return the kernel of a sum of complex numbers: their parts are sums of their own."""
    assert call.shapes is not None
    assert call.out_shape is not None
    real = dtypes.float32 if call.out_dtype is dtypes.complex64 else dtypes.float64
    part, whole, axes = DTYPES[real], DTYPES[call.out_dtype], call.attrs["axis"]
    parts = replace(
        call, dtypes=(real,), out_dtype=real, shapes=((*call.shapes[0], 2),), out_shape=(*call.out_shape, 2)
    )  # fmt: skip
    keepdims = call.attrs["keepdims"]
    added = float_reduction(parts, lambda x: run(np.add.reduce, x, axes, None, None, keepdims))
    return lambda x: np.ascontiguousarray(added(x[..., None].view(part))).view(whole)[..., 0]


def _numpy_order(op: str, shape: Sequence[int], axes: Sequence[int], n: int) -> str:
    """Say whether NumPy's order is that of rows here: "always", where an array is "packed", or never."""
    long = [k for k, length in enumerate(shape) if length > 1]
    at = [place for place, k in enumerate(long) if k in axes]
    if op == "prod":
        return "always" if n <= SEQUENTIAL_PRODUCT_LENGTH else ""
    if len(long) == 1 or (n < SEQUENTIAL_SUM_LENGTH and len(at) == 1):
        return "always"
    return (
        "packed"
        if at[-1] - at[0] < len(at) and (n < SEQUENTIAL_SUM_LENGTH or at[-1] == len(long) - 1)
        else ""
    )


def _by_contiguity(numpy_order: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def by_contiguity(x: Any) -> Any:
        flags = x.flags
        return numpy_order(x) if flags.c_contiguous and flags.aligned else other(x)

    return by_contiguity


def _numpy_then_native(call: Call, transposed: Callable[..., Any]) -> Callable[..., Any]:
    """Return what has NumPy serve the first calls, and C the others: both give the same bits."""
    left, ready = NUMPY_FIRST_CALLS, list[Callable[..., Any]]()

    def numpy_then_native(x: Any) -> Any:
        nonlocal left
        if ready:
            return ready[0](x)
        left -= 1
        if left < 0:
            ready.append(_native(call) if serves(call) else transposed)
        return transposed(x)

    return numpy_then_native


def _transposed(call: Call) -> Callable[..., Any]:
    """Return what has NumPy reduce contiguous rows of a turned array."""
    assert call.shapes is not None
    axes, (shape,) = call.attrs["axis"], call.shapes
    outer = [k for k in range(len(shape)) if k not in axes]
    n, out = prod(shape[a] for a in axes), DTYPES[call.out_dtype]
    wide = out if out.itemsize >= 4 else np.dtype(np.float32)
    rows = (prod(shape[k] for k in outer), n)
    starts = _starts(n)

    def transposed(x: Any) -> Any:
        order = axes if len(axes) == 1 else sorted(axes, key=lambda k: -abs(x.strides[k]))
        y = x.transpose((*outer, *order))
        y = np.array(y, wide, order="C", copy=None if x.flags.aligned else True).reshape(rows)
        if call.op == "sum":
            total = np.add.reduce(y, 1)
        else:
            total = np.multiply.reduce(np.multiply.reduceat(y, starts, 1) if len(starts) > 1 else y, 1)
        return total.astype(out, copy=False).reshape(call.out_shape)

    return lambda x: run(transposed, x)


def _starts(n: int) -> list[int]:
    """Return where the parts of a long product begin."""
    parts = -(-n // SEQUENTIAL_PRODUCT_LENGTH)
    return [n * c // parts for c in range(parts)]


def _native(call: Call) -> Callable[..., Any]:
    """Return what runs ``csource/row_stable_sum.c``."""
    assert call.shapes is not None
    dtype, axes, (shape,) = call.dtypes[0], call.attrs["axis"], call.shapes
    itemsize = DTYPES[dtype].itemsize

    @lru_cache(64)
    def ready(strides: Sequence[int]) -> Any:
        layout = reduction_layout(shape, strides, itemsize, axes)
        return layout and (layout, _prepared(*_steps(call, layout), DTYPES[call.out_dtype]))

    def strided(x: Any) -> Any:
        prepared = ready(x.strides) if x.flags.aligned else None
        if prepared is None:
            order = sorted(range(len(shape)), key=lambda k: (k in axes, -abs(x.strides[k])))
            transposed = packed(x.transpose(order))
            apart = reduction_layout(
                transposed.shape, transposed.strides, itemsize, [order.index(a) for a in axes]
            )
            assert apart is not None
            whole = _prepared(*_steps(call, apart), DTYPES[call.out_dtype])(transposed)
            left = tuple(order[k] for k in apart.left)
            return ReductionLayout(added=(), outer=(), columns=0, left=left).finish(whole, shape, call)
        how, launch = prepared
        return how.finish(launch(x), shape, call)

    packed_strides = [itemsize * prod(shape[k + 1 :]) for k in range(len(shape))]
    how = reduction_layout(shape, packed_strides, itemsize, axes)
    if how is None:
        return strided
    steps, scratch = _steps(call, how)
    assert call.out_shape is not None
    launches = Launches(1, (DTYPES[call.out_dtype], call.out_shape))
    if scratch:
        launches.scratch(scratch)
    for step in steps:
        launches.add(step)
    return launches.function(strided)


def _prepared(steps: Sequence[Launch], scratch: int, dtype: Any) -> Callable[[Any], Any]:
    """Return launches for an array of any layout; their result is in the order of memory."""
    compiler = NATIVE.needed()
    calls = [
        (compiler.prepared(s.function, len(s.buffers), slots(s.params), s.grid, s.piece), s.buffers)
        for s in steps
    ]
    last = steps[-1]
    count = prod(last.grid) if last.buffers[0] else last.params[12] * last.params[13]

    def launched(x: Any) -> Any:
        out, between = empty((int(count),), dtype), empty((scratch,), np.uint8)
        memory = [address(a) for a in (x, out, between)]
        for launch, buffers in calls:
            launch(*[memory[k] for k in buffers])
        return out

    return launched


def _steps(call: Call, how: ReductionLayout) -> tuple[list[Launch], int]:
    """Return the launches, whose buffers are the array, the result and parts; and the bytes of parts."""
    dtype, out = call.dtypes[0], call.out_dtype
    acc = dtypes.float32 if out in NARROW else out
    kind = "sum" if call.op == "sum" else "product"
    name = f"{kind}_{'column' if how.columns else 'row'}"
    parts, grid, piece = _partition(call.op, how, DTYPES[acc].itemsize)
    native = routine(name, dtype, out if parts == 1 else acc, source="row_stable_sum")
    first = native.launch(name, (0, 1 if parts == 1 else 2), how.params(parts), grid, piece)
    if parts == 1:
        return [first], 0
    columns = max(how.columns, 1)
    params: tuple[int, ...] = (parts, columns)
    if kind == "sum":
        name, grid = "sum_parts", (columns, how.rows)
    else:
        rest = ReductionLayout(
            added=((parts, columns),), outer=((how.rows, parts * columns),), columns=how.columns, left=()
        )
        params, grid = rest.params(1), (columns, 1, how.rows) if how.columns else (1, how.rows)
    piece = _combine_piece(grid, parts)
    second = routine(name, acc, out, source="row_stable_sum").launch(name, (2, 1), params, grid, piece)
    return [first, second], parts * columns * how.rows * DTYPES[acc].itemsize


def _combine_piece(grid: Sequence[int], parts: int) -> tuple[int, ...]:
    """Return the piece of the grid of what puts parts together that is worth waking a thread for."""
    share = max(_MIN_THREAD_ELEMENTS // 16 // parts, 1)
    inner = min(grid[0], max(share, _MIN_THREAD_COLUMNS))
    return (inner, *(1,) * (len(grid) - 2), max(share // inner, 1))


def _partition(op: str, how: ReductionLayout, itemsize: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return the parts of each row, the grid of them all, and what a thread takes of it at a time."""
    n, rows, columns = how.count, how.rows, how.columns
    many = n * rows * max(columns, 1) // _MIN_THREAD_ELEMENTS
    target, share = (
        (4 * _MIN_PIECES, _MIN_THREAD_ELEMENTS // 4)
        if many >= _MIN_PIECES
        else (max(many, 1), _MIN_THREAD_ELEMENTS)
    )
    parts = -(-n // SEQUENTIAL_PRODUCT_LENGTH) if op == "prod" else 1
    if not columns:
        while op == "sum" and n // parts > share // 2:  # two at a time are added quickest
            parts *= 2
        return parts, (parts, rows), (max(share * parts // n, 1), max(share // n, 1))
    piece = min(_COLUMN_BLOCK_BYTES // itemsize, columns)
    boxes = -(-columns // piece) * rows
    while op == "sum" and boxes * parts < target and n // parts >= 4 * _MIN_SUM_LENGTH:
        parts *= 2
    least = min(target, _MIN_PIECES)
    if boxes * parts < least:
        piece = min(max(-(-columns * rows * parts // least), _MIN_THREAD_COLUMNS), piece)
    lines = max(share * parts // (n * columns), 1) if piece == columns else 1
    return parts, (columns, parts, rows), (piece, 1, lines)
