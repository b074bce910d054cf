"""Matrix products through BLAS, for dtypes too that it does not know, and what patches of images need."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, DType, Kernel, dtypes

from ..compiler import NATIVE
from ..convolution.tiled_functions import MAX_COLUMNS, tiles
from ..eager.candidates import costly_size, native_first
from ..eager.kernels_native import COMPUTE_BOUND_SIZE, GeneratedKernel, copied, routine
from ..eager.kernels_numpy import prepared
from ..memory import DTYPES, empty, run
from . import mkl_gemm, packed_gemm

_FLOATS: Final = (dtypes.float32, dtypes.float64)
_MIN_NATIVE_WORK: Final = 1 << 14
_TILE_COLUMNS: Final = MAX_COLUMNS // 4
"""Columns that ``implicit_gemm.c`` multiplies at a time: a multiple of two vectors of any processor."""
_MIN_BATCH: Final = 8
_MAX_NATIVE_WORK: Final = 1 << 27
"""From how many matrices on, and up to how many multiplications in each, ``implicit_gemm.c`` multiplies
batches."""
_EXACT_FLOAT: Final = {1: (np.float32, 1 << 10), 2: (np.float64, 1 << 23)}
"""By bytes of an integer: the float that its products add up in without rounding, and how many of them."""


def float16_product(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the product of 16-bit floats: in float32, rounded once."""
    product = packed_gemm.gemm(call) or mkl_gemm.gemm(call)
    if product is not None:
        return product
    own = call.dtypes[0]
    widen, back = cast(own, dtypes.float32), cast(dtypes.float32, own)
    wide = replace(call, dtypes=(dtypes.float32,) * 2, out_dtype=dtypes.float32)
    multiply = batched_product(wide, lambda x, y: run(np.matmul, x, y))
    return lambda x, y: back(multiply(widen(x), widen(y)))


def integer_product(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the product of integers of 8 or 16 bits, which wraps: exact sums in floats, piece by piece.

    Signed and unsigned products are the same bits.
    """
    product = packed_gemm.gemm(call) or mkl_gemm.gemm(call)
    if product is not None:
        return product
    own = DTYPES[call.dtypes[0]]
    wide, most = _EXACT_FLOAT[own.itemsize]
    signed = np.dtype(f"i{own.itemsize}")
    widen = cast(_INTEGERS[own.itemsize], dtypes.float32 if wide is np.float32 else dtypes.float64)

    def multiply(x: Any, y: Any) -> Any:
        length = x.shape[-1]
        if x.size + y.size < _MIN_NATIVE_WORK or not length:
            return otherwise(x, y)
        a, b = widen(x.view(signed)), widen(y.view(signed))
        total: Any = None
        for start in range(0, length, most):
            part = run(np.matmul, a[..., start : start + most], b[..., start : start + most, :])
            part = run(part.astype, np.int64 if wide is np.float64 else np.int32)
            total = part if total is None else run(np.add, total, part, total)
        return run(total.astype, own)

    return multiply


_INTEGERS: Final = {1: dtypes.int8, 2: dtypes.int16}


def matmul(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the product's kernel: BLAS, after widening where it does not know the dtype."""
    assert call.shapes is not None
    assert call.out_shape is not None
    left, right = call.shapes
    if len(left) > 2 == len(right):  # one product of all rows in place of many
        rows, shape = (prod(left[:-1]), left[-1]), call.out_shape
        flat = matmul(replace(call, shapes=(rows, right), out_shape=(rows[0], right[1])), otherwise)
        return lambda x, y: flat(x.reshape(rows), y).reshape(shape)
    if call.dtypes[0] in (dtypes.float16, dtypes.bfloat16):
        return float16_product(call, otherwise)
    if call.dtypes[0].is_integer and call.dtypes[0].itemsize <= 2:
        return integer_product(call, otherwise)
    plain = call.dtypes[0] in _FLOATS or call.dtypes[0].is_integer
    return batched_product(call, otherwise) if plain else otherwise


def batched_product(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the product of many matrices, side by side: BLAS takes one at a time, with all threads."""
    assert call.shapes is not None
    assert call.out_shape is not None
    shapes, out_shape = call.shapes, call.out_shape
    (m, depth), n = shapes[0][-2:], shapes[1][-1]
    count = prod(out_shape[:-2])
    lead = prod(shapes[0][:-2])
    least = _MIN_BATCH if call.dtypes[0] in _FLOATS else 1
    if count < least or count != prod(shapes[1][:-2]) or lead not in (1, count):
        return otherwise
    if not count * m * n * depth >= _MIN_NATIVE_WORK or m * n * depth > _MAX_NATIVE_WORK:
        return otherwise
    grid = (-(-n // _TILE_COLUMNS), count)

    def multiply(x: Any, y: Any) -> Any:
        if NATIVE.compiler() is None:
            return otherwise(x, y)
        try:
            a, b = x.reshape((lead, m, depth), copy=False), y.reshape((count, depth, n), copy=False)
        except ValueError:
            return otherwise(x, y)
        out, size = empty(out_shape, x.dtype), x.itemsize
        functions = tiles(call.dtypes[0], 6, 2)
        down, along = (s // size for s in a.strides[1:])
        lined = empty((lead, -(-m // functions.tall), depth, functions.tall), x.dtype)
        strides = (m, depth, 1, 1, 1, a.strides[0] // size, down, along, 0, 0, 0, 0)
        functions.run("pack_rows", (a, lined), strides, (lined.shape[1], lead), (8, 1))
        each, high, wide = (s // size for s in b.strides)
        functions.run("product", (lined, b, out), (m, n, depth, high, wide, each, lead), grid, (1, 1))
        return out

    return multiply


def cast(source: DType, target: DType) -> Callable[[Any], Any]:
    """Return what casts arrays, in all threads where they are large."""
    native = DTYPES[target]
    call = Call(
        op="cast",
        dtypes=(source,),
        shapes=None,
        attrs={"dtype": target},
        out_dtype=target,
        out_shape=None,
        index=0,
    )
    large = GeneratedKernel(call, lambda x: run(x.astype, native))
    return lambda x: large(x) if x.size >= COMPUTE_BOUND_SIZE and NATIVE.compiler() else run(x.astype, native)


def reshape(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a large reshape, which copies in all threads where it must."""
    shape = call.attrs["shape"]

    def move(x: Any) -> Any:
        try:
            return x.reshape(shape, copy=False)
        except ValueError:
            return copied(x).reshape(shape)

    return move


def fold(call: Call, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of a large fold: images side by side."""
    shape, stride, dilation = (call.attrs[key] for key in ("shape", "stride", "dilation"))
    rank = len(shape)

    def three(lengths: Sequence[int], fill: int) -> list[int]:
        return [fill] * (3 - rank) + list(lengths)

    def add(x: Any) -> Any:
        lead = x.shape[: -2 * rank]
        if rank > 3 or NATIVE.compiler() is None or 0 in x.shape:
            return otherwise(x)
        try:
            images = x.reshape((prod(lead), *x.shape[len(lead) :]), copy=False)
        except ValueError:
            images = copied(x).reshape((prod(lead), *x.shape[len(lead) :]))
        steps = [s // x.itemsize for s in images.strides]
        params = [
            *three(shape, 1), *three(images.shape[1 : 1 + rank], 1), *three(images.shape[1 + rank :], 1),
            *three(stride, 1), *three(dilation, 1), *three(steps[1 : 1 + rank], 0),
            *three(steps[1 + rank :], 0), steps[0],
        ]  # fmt: skip
        out = empty((*lead, *shape), x.dtype)
        routine("overlap", call.dtypes[0], call.dtypes[0]).run(
            "overlap", (images, out), params, (len(images),), (1,)
        )
        return out

    return add


@cache
def _openblas() -> Any:
    """Return what sets the threads of the BLAS in NumPy's wheel; None for another BLAS."""
    for path in Path(np.__file__).parent.parent.glob("numpy.libs/*openblas*"):
        return getattr(ctypes.CDLL(str(path)), "scipy_openblas_set_num_threads64_", None)
    return None


def use_blas_threads(count: int) -> None:
    """Make BLAS use ``count`` threads, where it can be told."""
    if _openblas() is not None:
        _openblas()(count)


def matmul_kernels(numpy: Mapping[str, Kernel]) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of matrix products, and of folds, which put their patches together."""
    product = Kernel(name="blas", prepare=lambda call: matmul(call, prepared(numpy["matmul"], call)))
    native = (dtypes.float32, dtypes.float64)
    return {
        "matmul": (product,),
        "fold": native_first(numpy["fold"], fold, costly_size, lambda call: call.dtypes[0] in native),
    }
