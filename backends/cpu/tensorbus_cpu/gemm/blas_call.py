"""Matrix products of a program as BLAS takes them: strides, stacks of matrices, and tiles for threads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from tensorbus.backend_api import dtypes

from ..compiler import NATIVE
from ..native.late_word import LateWord

if TYPE_CHECKING:  # the code generator is imported when something is to be generated
    from tensorbus.backend_api import Layout, LibraryCall

SMALL_PRODUCT: Final = 1 << 14
"""Up to how many multiplications ``csource/gemm.c`` does them itself."""
_THREAD_WORK: Final = 1 << 20
"""Multiplications that a thread does at a time, at least."""
_MIN_TILE: Final = 64
"""Rows or columns of a tile, at least."""


_FUNCTIONS: Final = (
    "scipy_cblas_sgemm64_", "scipy_cblas_dgemm64_", "scipy_cblas_sgemv64_", "scipy_cblas_dgemv64_",
    "scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_",
)  # fmt: skip


@cache
def blas_functions() -> tuple[ctypes.c_void_p, ...]:
    """Return what ``csource/gemm.c`` calls of the BLAS in NumPy's wheel; nothing of another one."""
    folder = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if "openblas64_" not in name:
            continue
        library = ctypes.CDLL(os.path.join(folder, name))
        if all(hasattr(library, name) for name in _FUNCTIONS):
            return tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in _FUNCTIONS)
    return ()


_APART, _AS_ROWS, _AS_STACK, _AS_ONE = range(4)


def product_words(call: LibraryCall, grid: tuple[int, ...] | None = None) -> list[Any] | None:
    """Return the numbers of a product for ``csource/gemm.c``; None for one that BLAS does not take.

    ``grid`` is that of the launch after it, where that one goes on with the product element by element.
    """
    from tensorbus.backend_api import Layout

    if call.op != "matmul" or call.specs[0].dtype not in (dtypes.float32, dtypes.float64):
        return None
    a, b = call.inputs
    if not isinstance(a, Layout) or not isinstance(b, Layout):
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    lead = call.out_specs[0].shape[:-2]
    left, right = _matrix(a), _matrix(b)
    if left is None or right is None:
        return None
    (a_row, a_column), (b_row, b_column) = left, right
    along_a, along_b = _batch(a, lead), _batch(b, lead)
    axes = [axis for axis, length in enumerate(lead) if length != 1]
    while axes and along_b[axes[-1]] == 0 and a_column == 1 and along_a[axes[-1]] == m * a_row:
        m *= lead[axes.pop()]
    count = prod(lead[axis] for axis in axes)
    if not blas_functions() and m * n * k > SMALL_PRODUCT:
        return None
    tall, broad = _tile_words(m, n, k, count)
    return [
        int(call.specs[0].dtype is dtypes.float64), a.slot, b.slot, call.outputs[0], m, n, k,
        a_row, a_column, b_row, b_column, a.offset, b.offset, tall, broad,
        _epilogue_layout(grid, m, n, count, broad),
        len(axes), *(lead[x] for x in axes), *(along_a[x] for x in axes), *(along_b[x] for x in axes),
    ]  # fmt: skip


def _tile_words(m: int, n: int, k: int, count: int) -> Sequence[Any]:
    """Return the rows and columns that a thread takes at a time; of a plan how they are computed."""
    from tensorbus.backend_api import SymInt

    sizes: tuple[Any, ...] = (m, n, k, count)
    if any(type(x) is SymInt for x in sizes):
        return [LateWord("tile", sizes, axis) for axis in range(2)]
    return tile(*sizes)


def _epilogue_layout(grid: tuple[int, ...] | None, m: int, n: int, count: int, broad: Any) -> int:
    """Return how a launch's grid lies over a product: see ``go_on`` in ``csource/gemm.c``."""
    if grid is None or 0 in (m, n, count):
        return _APART
    width, rows, stack = (*grid, 1, 1, 1)[:3]
    if width == n and stack == 1 and rows == m * count:
        return _AS_ROWS
    if width == n and rows == m and stack == count:
        return _AS_STACK
    one = (rows, stack) == (1, 1) and width == m * n * count
    return _AS_ONE if one and type(broad) is not LateWord and broad >= n else _APART


def _matrix(x: Layout) -> tuple[int, int] | None:
    """Return the strides of rows and columns; None where neither axis is packed."""
    rows, columns = x.shape[-2:]
    row, column = x.strides[-2:]
    if columns == 1:
        column = 1 if rows == 1 or row >= 1 else column
    if rows == 1:
        row = columns if column == 1 else 1
    if column == 1 and row >= max(columns, 1):
        return row, column
    if row == 1 and column >= max(rows, 1):
        return row, column
    return None


def _batch(x: Layout, lead: tuple[int, ...]) -> tuple[int, ...]:
    own = x.shape[:-2]
    strides = [0 if n == 1 else s for n, s in zip(own, x.strides, strict=False)]
    return (*(0,) * (len(lead) - len(own)), *strides)


def tile(m: int, n: int, k: int, count: int) -> tuple[int, int]:
    """Return the rows and columns that a thread takes at a time: enough tiles to keep all busy."""
    tall, broad = max(m, 1), max(n, 1)
    target = 4 * NATIVE.threads if NATIVE.threads > 1 else 1
    while count * -(-m // tall) * -(-n // broad) < target and tall * broad * k >= 2 * _THREAD_WORK:
        if tall >= broad and tall >= 2 * _MIN_TILE:
            tall = -(-tall // 2 // 16) * 16 if tall > 32 else tall
        elif broad >= 2 * _MIN_TILE:
            broad = -(-broad // 2 // 16) * 16
        else:
            break
    return tall, broad
