"""Products of bfloat16 and of bytes through MKL, where it is and the processor has instructions for them.

Nothing else is asked of MKL: without such instructions BLAS in float32 is faster, and for integers exact.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path
from struct import pack
from typing import Any, Final

from tensorbus.backend_api import Call, dtypes

from ..compiler import NATIVE, c_source
from ..eager.kernels_native import packed
from ..memory import DTYPES, empty

_SEQUENTIAL, _INTS_OF_32_BITS = 1, 0
_AS_IT_IS, _TRANSPOSED = 111, 112
_BLOCK: Final = (1024, 512)
"""Rows and columns that a thread multiplies at a time; the same for any number of threads, as results are."""
_MIN_WORK: Final = 1 << 18
"""Multiplications from which on MKL is asked."""
_MAX_DEPTH: Final = 1 << 16
"""Products of bytes that 32 bits add up without overflow."""
_BFLOAT: Final = ("cblas_gemm_bf16bf16f32", frozenset({"amx_bf16", "avx512_bf16"}), dtypes.float32)
_BYTES: Final = ("cblas_gemm_s8u8s32", frozenset({"amx_int8", "avx512_vnni", "avx_vnni"}), dtypes.int32)
PRODUCTS: Final = {dtypes.bfloat16: _BFLOAT, dtypes.int8: _BYTES, dtypes.uint8: _BYTES}
"""By dtype: MKL's function, the instructions of which one makes it worth while, and what it adds up in.

A product of bytes takes one operand without and one with a sign; modulo 256 it is that of any two.
"""


@cache
def library() -> ctypes.CDLL | None:
    """Return MKL, told to use the caller's thread alone; None where the ``mkl`` package is not installed."""
    from importlib import metadata

    try:
        files = metadata.files("mkl") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name.startswith("libmkl_rt.so"):
            mkl = ctypes.CDLL(str(Path(str(file.locate())).resolve()))
            mkl.MKL_Set_Threading_Layer(_SEQUENTIAL)
            mkl.MKL_Set_Interface_Layer(_INTS_OF_32_BITS)
            return mkl
    return None


@cache
def instructions() -> frozenset[str]:
    """Return the names of the processor's instruction sets, where the system tells them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def gemm(call: Call) -> Callable[[Any, Any], Any] | None:
    """Return what gives a product, its sums rounded or wrapped once; None where MKL is not for it.

    MKL is asked for large products of dtypes that the processor has instructions for.
    """
    if call.dtypes[0] not in PRODUCTS or call.shapes is None or call.out_shape is None:
        return None
    name, worth, wide = PRODUCTS[call.dtypes[0]]
    (m, depth), n = call.shapes[0][-2:], call.shapes[1][-1]
    count, out_shape = prod(call.out_shape[:-2]), call.out_shape
    leads = tuple(prod(shape[:-2]) for shape in call.shapes)
    small = count * m * n * depth < _MIN_WORK or max(m, n, depth) >= 1 << 31
    if (
        small
        or not all(lead in (1, count) for lead in leads)
        or (wide is dtypes.int32 and depth > _MAX_DEPTH)
    ):
        return None
    if not worth & instructions():
        return None
    compiler, mkl = NATIVE.compiler(), library()
    if compiler is None or mkl is None:
        return None
    macros = "#define INTEGERS\n" if wide is dtypes.int32 else ""
    function = compiler.library(macros + c_source("mkl")).tb_gemm
    addresses = [_address(getattr(mkl, name)), _address(mkl.MKL_Set_Num_Threads_Local)]
    tall, broad = min(m, _BLOCK[0]), min(n, _BLOCK[1])
    grid = (-(-n // broad), -(-m // tall), count)

    def multiply(x: Any, y: Any) -> Any:
        out = empty(out_shape, DTYPES[call.dtypes[0]])
        x, x_lines = _readable(x, leads[0])
        y, y_lines = _readable(y, leads[1])
        sums = empty((prod(grid), tall * broad), DTYPES[wide])
        params = pack("15q", m, n, depth, tall, broad, *x_lines, *y_lines, grid[0], grid[0] * grid[1])
        arrays = [array.ctypes.data for array in (x, y, sums, out)]
        compiler.call(function, [*addresses, *arrays], params, grid, (1, 1, 1))
        return out

    return multiply


def _address(function: Any) -> int:
    pointer = ctypes.cast(function, ctypes.c_void_p).value
    assert pointer is not None
    return pointer


def _readable(x: Any, lead: int) -> tuple[Any, tuple[int, int, int, int]]:
    """Return a stack of matrices that MKL can read, with their order, line, stride and number."""
    try:
        stack = x.reshape((lead, *x.shape[-2:]), copy=False)
    except ValueError:
        stack = packed(x).reshape((lead, *x.shape[-2:]))
    for order, along, down in ((_AS_IT_IS, 2, 1), (_TRANSPOSED, 1, 2)):
        line = stack.strides[down] // x.itemsize
        if stack.strides[along] == x.itemsize and stack.shape[along] <= line < 1 << 31:
            return stack, (order, line, stack.strides[0] // x.itemsize, lead)
    return _readable(packed(stack), lead)
