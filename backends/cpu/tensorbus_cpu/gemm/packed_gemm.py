"""Products of bfloat16 and of bytes by the processor's own instructions for them: ``packed_gemm.c``."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any, Final

import numpy as np
from tensorbus.backend_api import Call, DeviceError, DType, dtypes

from ..compiler import NATIVE, CCompiler, c_source
from ..eager.eager_launch import Launch, Launches, slots
from ..eager.kernels_native import packed
from ..memory import DTYPES, empty
from .mkl_gemm import instructions

_BYTES: Final = {"amx": "amx_int8", "avx512": "avx512_vnni"}
IMPLEMENTATIONS: Final = {
    dtypes.bfloat16: {"amx": "amx_bf16", "avx512": "avx512_bf16"}, dtypes.int8: _BYTES, dtypes.uint8: _BYTES,
}  # fmt: skip
"""By dtype: what may follow ``packed_gemm.c``, the fastest first, and the instructions that it needs."""
_MIN_WORK: Final = {False: 1 << 18, True: 1 << 15}
"""Multiplications from which on packing operands pays, by whether both have many lines."""
_MIN_BATCH: Final = 8
_MAX_PADDING: Final = 8
"""Panels of many small matrices that are filled to a share of that are not worth packing."""
_LINES, _MAX_PANELS, _MIN_PANELS, _STEP = 32, 8, 2, 2048
"""As in the source: lines of a panel, panels of a block of sums, down and across, bytes of a panel's step."""
_MIN_BLOCKS: Final = 64
"""Blocks that keep all threads busy to the end, where there is enough for as many."""
_PACK_BYTES, _MIN_PACK_PIECES = 1 << 19, 16
"""Bytes that a thread packs at a time, where there are boxes enough for all."""


def gemm(call: Call) -> Callable[[Any, Any], Any] | None:
    """Return what gives a product, its sums rounded or wrapped once; None where there are no tiles for it."""
    if call.shapes is None or call.out_shape is None:
        return None
    (m, depth), n, count = call.shapes[0][-2:], call.shapes[1][-1], prod(call.out_shape[:-2])
    small = count * m * n * depth < _MIN_WORK[min(m, n) >= _MIN_BATCH]
    filled = prod(-(-side // _LINES) * _LINES for side in (m, n, depth))
    small = small or (count > 1 < min(m, n) and filled >= _MAX_PADDING * m * n * depth)
    if small or not all(lead in (1, count) for lead in _batches(call)):
        return None
    compiler = NATIVE.compiler()
    library = _library(compiler, call.dtypes[0]) if compiler is not None else None
    return None if compiler is None or library is None else product(call, compiler, library)


def source(integers: bool, instructions_name: str) -> str:
    """Return the source of products of bfloat16, or of integers of 8 bits."""
    return ("#define INTEGERS\n" if integers else "") + c_source("packed_gemm") + c_source(instructions_name)


@cache
def _library(compiler: CCompiler, dtype: DType) -> ctypes.CDLL | None:
    """Return the fastest functions that processor, compiler and system know; None where there are none."""
    for instructions_name, needed in IMPLEMENTATIONS.get(dtype, {}).items():
        if needed not in instructions():
            continue
        try:
            library = compiler.library(source(dtype.is_integer, instructions_name))
        except DeviceError:
            continue
        if library.tb_ready():
            return library
    return None


def _batches(call: Call) -> tuple[int, ...]:
    assert call.shapes is not None
    return tuple(prod(shape[:-2]) for shape in call.shapes)


def _blocks(m: int, n: int, count: int) -> tuple[int, tuple[int, int, int]]:
    """Return the panels on each side of a block of sums, and the grid of blocks."""
    side = _MAX_PANELS
    while True:
        grid = -(-n // (_LINES * side)), -(-m // (_LINES * side)), count
        if prod(grid) >= _MIN_BLOCKS or side == _MIN_PANELS:
            return side, grid
        side //= 2


def product(call: Call, compiler: CCompiler, library: ctypes.CDLL) -> Callable[[Any, Any], Any]:
    """Return the kernel of a product of two stacks of matrices, one of which may be of one matrix."""
    assert call.shapes is not None
    assert call.out_shape is not None
    (m, depth), n, out_shape = call.shapes[0][-2:], call.shapes[1][-1], call.out_shape
    leads, step = _batches(call), 64 // call.dtypes[0].itemsize
    line = -(-depth // step) * _STEP
    side, grid = _blocks(m, n, prod(out_shape[:-2]))
    params = (m, n, depth, *leads, side)

    def packing(lead: int, lines: int, strides: Sequence[int], transposed: bool) -> tuple[Any, Any, Any]:
        """Return the parameters, grid and pieces that pack an operand."""
        panels, steps = -(-lines // _LINES), -(-depth // step)
        boxes = max(min(_PACK_BYTES // (steps * _STEP), panels // _MIN_PACK_PIECES), 1)
        each, down, along = strides
        return (lines, depth, down, along, each, int(transposed)), (panels, lead), (boxes, 1)

    def lined(x: Any, lead: int, transposed: bool) -> Any:
        x = packed(x) if not x.flags.aligned or any(s % x.itemsize for s in x.strides) else x
        try:
            stack = x.reshape((lead, *x.shape[-2:]), copy=False)
        except ValueError:
            stack = packed(x).reshape((lead, *x.shape[-2:]))
        each, down, along = (s // x.itemsize for s in stack.strides)
        lines, down, along = (n, along, down) if transposed else (m, down, along)
        out = empty((lead, -(-lines // _LINES), -(-depth // step), _STEP), np.uint8)
        pack_params, grid, piece = packing(lead, lines, (each, down, along), transposed)
        compiler.call(library.tb_pack, [stack.ctypes.data, out.ctypes.data], slots(pack_params), grid, piece)
        return out

    def multiply(x: Any, y: Any) -> Any:
        out = empty(out_shape, DTYPES[call.dtypes[0]])
        left, right = lined(x, leads[0], False), lined(y, leads[1], True)
        arrays = [array.ctypes.data for array in (left, right, out)]
        compiler.call(library.tb_multiply, arrays, slots(params), grid, (1, 1, 1))
        return out

    launches = Launches(2, (DTYPES[call.dtypes[0]], out_shape))
    sides = (m, (m * depth, depth, 1)), (n, (depth * n, 1, n))
    operands = []
    for k, (lines, strides) in enumerate(sides):
        numbers, pack_grid, piece = packing(leads[k], lines, strides, k == 1)
        operands.append(launches.scratch(pack_grid[0] * line * leads[k]))
        buffers: tuple[int, ...] = (k, operands[k])
        launches.add(
            Launch(function=library.tb_pack, buffers=buffers, params=numbers, grid=pack_grid, piece=piece), 0
        )
    buffers = (*operands, 2)
    launches.add(
        Launch(function=library.tb_multiply, buffers=buffers, params=params, grid=grid, piece=(1, 1, 1))
    )
    return launches.function(multiply)
