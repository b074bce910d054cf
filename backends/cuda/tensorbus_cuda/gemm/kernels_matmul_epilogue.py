"""Products of half precision that add a row, or a matrix, before they round: cuBLASLt's epilogues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, StridedArray, pack
from tensorbus.backend_api import dtypes as dt

from ..device import runtime

NAME: Final = "affine"
STEP: Final = 8
"""Lengths are multiples of this many elements, 16 bytes: then the library needs no other algorithm."""
_HALF: Final = (dt.float16, dt.bfloat16)


def supports(call: Call) -> bool | str:
    """Return True where the library adds all that a call adds, else why not."""
    assert call.shapes is not None
    (x, y), added = call.shapes[:2], call.shapes[2:]
    if any(d not in _HALF for d in call.dtypes):
        return "takes float16 and bfloat16"
    if len(x) != 2 or len(y) != 2 or 0 in (*x, *y):
        return "takes two matrices"
    if x[1] % STEP or y[1] % STEP:
        return f"takes lengths that are multiples of {STEP}"
    kinds = [_kind(shape, (x[0], y[1])) for shape in added]
    if call.attrs["ends"] and "matrix" in kinds:
        return "adds no matrix before a function"
    if not kinds and not call.attrs["ends"]:
        return "adds something"
    if None in kinds or len(set(kinds)) < len(kinds):
        return "adds one row, one matrix of the result's shape, or both"
    return True


def _kind(shape: tuple[int, ...], result: tuple[int, int]) -> str | None:
    return "matrix" if shape == result else "row" if shape == result[1:] else None


def prepare(call: Call) -> Any:
    """Return what takes the operands to a new value."""
    queue = _queue(call)
    unit, compiler, index = runtime().units[call.index], runtime().compiler, call.index
    like = StridedArray.contiguous(None, call.out_shape or (), call.out_dtype)

    def eager(*values: StridedArray) -> StridedArray:
        block = unit.pool.allocate(like.nbytes)
        if not queue(values, block):
            queue([pack(compiler, x, index) for x in values], block)
        return StridedArray(block, like.shape, like.strides, 0, like.dtype)

    return eager


def into(call: Call) -> Callable[[Sequence[Any], Sequence[Any]], bool]:
    """Return what writes the result into a block that is given."""
    queue = _queue(call)
    return lambda values, blocks: queue(values, blocks[0])


@dataclass(frozen=True, slots=True)
class _Layouts:
    """The layouts of the operands of one call."""

    strides: tuple[tuple[int, ...], ...]
    aligned: tuple[bool, ...]


def _queue(call: Call) -> Callable[[Sequence[StridedArray], Any], bool]:
    from . import cublaslt, matrix_layout

    assert call.shapes is not None
    unit, dtype, shapes = runtime().units[call.index], call.dtypes[0], call.shapes
    result = (shapes[0][0], shapes[1][1])
    kinds = [_kind(shape, result) for shape in shapes[2:]]
    row = kinds.index("row") + 2 if "row" in kinds else None
    whole = kinds.index("matrix") + 2 if "matrix" in kinds else None
    packed = {k: StridedArray.contiguous(None, shapes[k], dtype).strides for k in (row, whole) if k}
    known: dict[_Layouts, Any] = {}

    def prepared(values: Sequence[StridedArray], layouts: _Layouts) -> Any:
        a, b = (matrix_layout.matrix_of(v.shape, v.strides, 0) for v in values[:2])
        if a is None or b is None or any(layouts.strides[k] != packed[k] for k in packed):
            return None
        if not all(layouts.aligned[2:]):
            return None
        return unit.library().product(
            a, b, 1, cublaslt.arithmetic_of(dtype), (layouts.aligned[0], layouts.aligned[1]),
            adds=whole is not None, row=row is not None, ends=call.attrs["ends"], rank=call.variant,
        )  # fmt: skip

    def run(values: Sequence[StridedArray], out: Any) -> bool:
        aligned = tuple([matrix_layout.is_aligned(v) for v in values])
        layouts = _Layouts(tuple([v.strides for v in values]), aligned)
        if layouts not in known:
            with unit.current():
                known[layouts] = prepared(values, layouts)
        product = known[layouts]
        if product is None:
            return False
        stream = unit.stream()
        for block in (*[v.buffer for v in values], out):
            if block.stream is not stream:
                block.used_by(stream)
        places = [v.buffer.ptr + v.dtype.itemsize * v.offset for v in values]
        with unit.current():
            product.queue(
                places[0], places[1], out.ptr, stream, row=places[row] if row else 0,
                added=places[whole] if whole else 0,
            )  # fmt: skip
        return True

    return run


def epilogue_kernels() -> dict[str, Kernel]:
    """Return cuBLASLt's kernel of products with a sum behind them."""
    return {NAME: Kernel(name="epilogue", prepare=prepare, out=into, supports=supports)}
