"""Products of floats of 8 bits with a factor for each operand: cuBLASLt scales before it rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import Call, Kernel, StridedArray, pack
from tensorbus.backend_api import dtypes as dt

from ..device import runtime
from .kernels_matmul_8bit import FLOATS, OLDEST, STEP, Prepare, Sizes, is_served, multiplier, sides, sizes, up

if TYPE_CHECKING:
    from ..unit import Unit

NAME: Final = "scaled_matmul"
_HALF: Final = (dt.float16, dt.bfloat16)


def supports(call: Call) -> bool | str:
    """Return True where the library serves the call, else why not."""
    assert call.shapes is not None
    (x, y), scales, added = call.shapes[:2], call.shapes[2:4], call.shapes[4:]
    if any(d not in FLOATS for d in call.dtypes[:2]):
        return "takes floats of 8 bits"
    if call.dtypes[:2] == (dt.float8_e5m2,) * 2:
        return "takes float8_e5m2 on one side only"
    if not is_served(call.dtypes[:2], call.index):
        return f"takes GPUs of compute capability {OLDEST[True] / 10} or later"
    if any(prod(shape) != 1 for shape in scales):
        return "takes one scale for each operand"
    size = sizes((x, y))
    if size is None or not size.work:
        return "takes one matrix on the right, or one for each on the left"
    if added and (added[0] != y[-1:] or call.out_dtype not in _HALF or y[-1] % STEP):
        return f"adds a row of a multiple of {STEP} elements to float16 or bfloat16"
    return True


def eager(pad: Prepare) -> Prepare:
    """Return what prepares calls; ``pad`` prepares those of this op."""

    def prepare(call: Call) -> Any:
        n, queue = _queue(call)
        unit, compiler, shape = runtime().units[call.index], runtime().compiler, call.out_shape or ()
        left, right = sides(call, n, pad)
        wide = StridedArray.contiguous(None, (*shape[:-1], up(n.columns)), call.out_dtype)

        def run(x: StridedArray, y: StridedArray, *others: StridedArray) -> StridedArray:
            out = unit.pool.allocate(wide.nbytes)
            queue(left(x), right(y), [pack(compiler, other, call.index) for other in others], out)
            return StridedArray(out, shape, wide.strides, 0, call.out_dtype)

        return run

    return prepare


def into(pad: Prepare) -> Callable[[Call], Callable[[Sequence[Any], Sequence[Any]], bool] | None]:
    """Return what prepares calls that write into a block; None for calls whose rows would lie apart."""

    def prepare(call: Call) -> Callable[[Sequence[Any], Sequence[Any]], bool] | None:
        n, queue = _queue(call)
        if up(n.columns) != n.columns:
            return None
        left, right = sides(call, n, pad)

        def run(values: Sequence[StridedArray], blocks: Sequence[Any]) -> bool:
            x, y = left.in_place(values[0]), right.in_place(values[1])
            if x is None or y is None or not all(v.is_contiguous for v in values[4:]):
                return False
            queue(x, y, values[2:], blocks[0])
            return True

        return run

    return prepare


def _queue(call: Call) -> tuple[Sizes, Callable[..., None]]:
    """Return the sizes, and what queues the product of operands in the library's form into a block."""
    from . import cublaslt

    assert call.shapes is not None
    n = sizes(call.shapes[:2])
    assert n is not None, "the kernel supports no others"
    unit: Unit = runtime().units[call.index]
    has_row, products = len(call.shapes) > 4, list[Any]()
    how = cublaslt.of_bytes(call.dtypes[0], call.dtypes[1], call.out_dtype)

    def queue(x: StridedArray, y: StridedArray, others: Sequence[StridedArray], out: Any) -> None:
        if not products:
            with unit.current():
                product = multiplier(unit, n, how, row=has_row, scaled=True, rank=call.variant)
            if product is None:
                raise unit.refused("cublasLtMatmul of floats of 8 bits", 15)
            products.append(product)
        stream = unit.stream()
        for block in (x.buffer, y.buffer, *[v.buffer for v in others], out):
            if block.stream is not stream:
                block.used_by(stream)
        scale_x, scale_y, *row = [v.buffer.ptr + v.dtype.itemsize * v.offset for v in others]
        with unit.current():
            products[0].queue(
                x.buffer.ptr + x.offset, y.buffer.ptr + y.offset, out.ptr, stream,
                row=row[0] if row else 0, scales=(scale_x, scale_y),
            )  # fmt: skip

    return n, queue


def scaled_matmul_kernels(prepare_generated: Callable[[str], Prepare]) -> dict[str, Kernel]:
    """Return cuBLASLt's kernel of products with scales."""
    pad = prepare_generated("pad")
    return {NAME: Kernel(name="scaled", prepare=eager(pad), out=into(pad), supports=supports)}
