"""The layout of operands as matrices, and their products: whole, or in two parts.

The library's fast algorithms move 16 bytes at a time. Where rows are a few elements longer than a multiple of
that, the many are one product and the few behind them another.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from tensorbus.backend_api import StridedArray, near
from tensorbus.backend_api import dtypes as dt

from .cublaslt import ALIGNED, Arithmetic, Library, Matrix, Product

PADDED_ROWS_MIN_SIZE: Final = 1 << 22
"""From how many elements on a matrix whose rows are odd is made with its rows apart."""
_SPLIT_MIN_WORK: Final = 1 << 30
"""From how many products of elements on a sum of an odd number of terms is cut in two."""


def matrix_of(shape: Sequence[int], strides: Sequence[int], stride: int) -> Matrix | None:
    """Return how the last two axes lie as a matrix; None where neither of them is packed."""
    (rows, columns), (down, along) = shape[-2:], strides[-2:]
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return Matrix(rows, columns, down if rows > 1 else columns, False, stride)
    if (down == 1 or rows == 1) and (along >= rows or columns == 1):
        return Matrix(rows, columns, along if columns > 1 else rows, True, stride)
    return None


def batch_of(x: StridedArray, y: StridedArray) -> tuple[int, int, int] | None:
    """Return how many products there are, and how far apart their operands; None where not evenly."""
    rank = max(len(x.shape), len(y.shape)) - 2
    axes: list[tuple[int, int, int]] = []
    for k in range(rank):
        batches = []
        for v in (x, y):
            at = k - rank + len(v.shape) - 2
            n = v.shape[at] if at >= 0 else 1
            batches.append((n, v.strides[at] if n > 1 else 0))
        length = max(n for n, _ in batches)
        if length == 1:
            continue
        step_x, step_y = batches[0][1], batches[1][1]
        if axes and axes[-1][1] == length * step_x and axes[-1][2] == length * step_y:
            axes[-1] = (axes[-1][0] * length, step_x, step_y)
        else:
            axes.append((length, step_x, step_y))
    if len(axes) > 1 or any(a < 0 or b < 0 for _, a, b in axes):
        return None
    return axes[0] if axes else (1, 0, 0)


def prepared(
    library: Library, x: StridedArray, y: StridedArray, aligned: tuple[bool, bool], how: Arithmetic,
    lead: int = 0, rank: int = 0,
) -> Product | Split | None:  # fmt: skip
    """Return the product of values that lie like these; None where the library cannot without a copy.

    ``lead``, ``rank``: see ``Library.product``; where rows are apart there is one matrix on the right only.
    """
    batch = batch_of(x, y)
    if batch is None:
        return None
    count, step_x, step_y = batch
    a, b = matrix_of(x.shape, x.strides, step_x), matrix_of(y.shape, y.strides, step_y)
    if a is None or b is None:
        return None
    if count > 1 and step_y == 0 and not a.transposed and step_x == a.rows * a.lead:
        # One matrix for all: their rows are those of one long matrix.
        a, count = Matrix(count * a.rows, a.columns, a.lead, False), 1
    if lead:
        return _by_columns(library, a, b, x.dtype, how, lead) if count == 1 else None
    if count == 1 and all(aligned):
        for cut in (_by_terms, _by_rows):
            if (product := cut(library, a, b, x.dtype, how)) is not None:
                return product
    return library.product(a, b, count, how, aligned, rank=rank)


class Split:
    """A product in two parts, one after the other: how far into the operands and the result each begins."""

    def __init__(self, *parts: tuple[Product, int, int, int]) -> None:
        self._parts = parts

    def queue(self, x: int, y: int, out: int, stream: Any) -> None:
        """Queue both."""
        for part, of_x, of_y, of_out in self._parts:
            part.queue(x + of_x, y + of_y, out + of_out, stream)


def _by_columns(
    library: Library, x: Matrix, y: Matrix, dtype: dt.DType, how: Arithmetic, lead: int
) -> Split | None:
    size = dtype.itemsize
    step = ALIGNED // size
    even = y.columns // step * step
    if not y.transposed or y.lead % step or not even:
        return None
    most, rest = (
        library.product(x, Matrix(y.rows, n, y.lead, True), 1, how, (True, True), lead)
        for n in (even, y.columns - even)
    )
    if most is None or rest is None:
        return None
    return Split((most, 0, 0, 0), (rest, 0, even * y.lead * size, even * size))


def _by_terms(library: Library, x: Matrix, y: Matrix, dtype: dt.DType, how: Arithmetic) -> Split | None:
    """Return a product whose last few terms are summed first, so that their rounding counts for little."""
    size, terms = dtype.itemsize, x.columns
    step = ALIGNED // size
    even = terms // step * step
    if size != 2 or even in (0, terms) or x.rows * y.columns * terms < _SPLIT_MIN_WORK:
        return None
    along = [m.lead % step == 0 for m in (x, y)]
    if not all(along) or (x.transposed and not y.transposed):
        return None
    few, many = (
        library.product(
            Matrix(x.rows, n, x.lead, x.transposed), Matrix(n, y.columns, y.lead, y.transposed), 1, how,
            (True, True), adds=n == even,
        )
        for n in (terms - even, even)
    )  # fmt: skip
    if few is None or many is None:
        return None
    of_x = even * (x.lead if x.transposed else 1) * size
    of_y = even * (1 if y.transposed else y.lead) * size
    return Split((few, of_x, of_y, 0), (many, 0, 0, 0))


def _by_rows(library: Library, x: Matrix, y: Matrix, dtype: dt.DType, how: Arithmetic) -> Split | None:
    """Return a product whose last few rows are made apart, where neighbours in memory are of one column."""
    size = dtype.itemsize
    step = ALIGNED // size
    even = x.rows // step * step
    work = x.rows * y.columns * x.columns
    if size != 2 or not x.transposed or even in (0, x.rows) or work < _SPLIT_MIN_WORK:
        return None
    if x.lead % step or y.lead % step or y.columns % step:
        return None
    most, rest = (
        library.product(Matrix(n, x.columns, x.lead, True), y, 1, how, (True, True))
        for n in (even, x.rows - even)
    )
    if most is None or rest is None:
        return None
    return Split((most, 0, 0, 0), (rest, even * size, 0, even * y.columns * size))


def lead_of(shape: Sequence[int], dtype: dt.DType) -> int:
    """Return how far apart the rows of a matrix should be: 0, packed, unless it is large and rows are odd.

    The library's fast algorithms store 16 bytes at a time, so that rows have to begin at multiples of that.
    """
    step = max(ALIGNED // dtype.itemsize, 1)
    if near(prod(shape)) < PADDED_ROWS_MIN_SIZE or shape[-1] % step == 0 or dtype.is_complex:
        return 0
    return -(-shape[-1] // step) * step


def is_aligned(x: StridedArray) -> bool:
    """Return whether the first element lies at a multiple of what the library's fast algorithms need."""
    return bool((x.buffer.ptr + x.offset * x.dtype.itemsize) % ALIGNED == 0)
