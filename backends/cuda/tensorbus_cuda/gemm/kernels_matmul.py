"""The kernels of matrix products: cuBLASLt's of bytes and of floats, then the generated one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

from tensorbus.backend_api import Call, Kernel, Layout, Node, StridedArray, get_matmul_precision, pack
from tensorbus.backend_api import dtypes as dt

from ..device import runtime
from ..unit import Unit
from . import kernels_matmul_8bit

MAX_KNOWN_LAYOUTS: Final = 256
Prepare = Callable[[Call], Any]


def supports(call: Call) -> bool | str:
    """Return whether cuBLASLt is asked for a product, or why it is not."""
    from . import cublaslt

    if call.dtypes[0] not in cublaslt.KINDS:
        return f"takes only {', '.join(sorted(dtype.name for dtype in cublaslt.KINDS))}"
    if call.shapes is None or call.out_shape is None or 0 in call.out_shape or 0 in call.shapes[0]:
        return "takes no matrix without elements"
    return True


def eager(generated: Prepare) -> Prepare:
    """Return what prepares a product: it takes two values and gives a new one, whose rows may be padded.

    It is left to the generated kernel at last where the library has no algorithm for how the operands lie.
    """

    def prepare(call: Call) -> Any:
        from . import matrix_layout

        multiply = _multiplier(call)
        assert multiply is not None, "the kernel supports no others"

        unit, shape, dtype = runtime().units[call.index], call.out_shape or (), call.out_dtype
        other: list[Any] = []
        wide = matrix_layout.lead_of(shape, dtype)

        def layout(lead: int) -> tuple[int, tuple[int, ...]]:
            whole = StridedArray.contiguous(None, (*shape[:-1], lead), dtype)
            return whole.nbytes, whole.strides

        leads = [(k, *layout(k or shape[-1])) for k in ((wide, 0) if wide else (0,))]

        def run(x: StridedArray, y: StridedArray) -> StridedArray:
            for lead, nbytes, strides in leads:
                out = unit.pool.allocate(nbytes)
                if multiply(x, y, out, lead):
                    return StridedArray(out, shape, strides, 0, dtype)
            if not other:
                other.append(generated(call))
            product: StridedArray = other[0](x, y)
            return product

        return run

    return prepare


def into(call: Call) -> Callable[[Sequence[Any], Sequence[Any]], bool] | None:
    """Return what writes a product of values into a block that is given; None where there is no such way."""
    multiply = _multiplier(call)
    if multiply is None:
        return None
    unit, size, apart = runtime().units[call.index], call.out_dtype.itemsize, call.row_stride
    *outer, width = call.out_shape or ()
    rows, rooms = prod(outer), dict[tuple[int, int], Any]()

    def run(values: Sequence[Any], blocks: Sequence[Any]) -> bool:
        if multiply(values[0], values[1], blocks[0], apart, packs=False):
            return True
        if not apart:
            return False
        own = unit.workplace(unit.stream())  # another stream may be at work in its own
        room = rooms.get(own)
        if room is None:
            room = rooms[own] = unit.pool.allocate(rows * width * size)
        if not multiply(values[0], values[1], room, packs=False):
            return False
        unit.copy_rows(room, width * size, blocks[0], apart * size, width * size, rows)
        return True

    return run


def apart(node: Node, layouts: Sequence[Layout | None]) -> int:
    """Return how far apart the rows of a product, or of what one reads, are best; 0: packed."""
    from . import cublaslt, matrix_layout

    shape, dtype = node.spec.shape, node.spec.dtype
    if dtype not in cublaslt.KINDS or not shape:
        return 0
    lead = matrix_layout.lead_of(shape, dtype)
    if not lead or not layouts:
        return lead
    y = layouts[-1]
    if node.op != "matmul" or len(shape) != 2 or y is None or y.offset or y.late is not None:
        return 0
    step = cublaslt.ALIGNED // dtype.itemsize
    return lead if y.strides[0] == 1 and y.strides[1] % step == 0 else 0


def _multiplier(call: Call) -> Callable[..., bool] | None:
    """Return what queues a product of two values into a block, and says whether it could.

    ``lead``: rows of the result are that far apart (0: packed). ``packs=False``: values that do not lie as
    matrices are refused, not copied.
    """
    from . import cublaslt, matrix_layout

    if supports(call) is not True:
        return None
    unit: Unit = runtime().units[call.index]
    compiler, index, dtype = runtime().compiler, call.index, call.dtypes[0]
    known: dict[Any, Any] = {}

    single, size = dtype is dt.float32, dtype.itemsize

    def prepared(x: StridedArray, y: StridedArray, places: tuple[int, int], lead: int) -> Any:
        precision = get_matmul_precision() if single else ""
        key = (
            x.strides,
            y.strides,
            places[0] % cublaslt.ALIGNED,
            places[1] % cublaslt.ALIGNED,
            precision,
            lead,
        )
        entry = known.get(key, known)
        if entry is known:
            if len(known) >= MAX_KNOWN_LAYOUTS:
                known.clear()
            aligned = matrix_layout.is_aligned(x), matrix_layout.is_aligned(y)
            with unit.current():
                entry = known[key] = matrix_layout.prepared(
                    unit.library(), x, y, aligned, cublaslt.arithmetic_of(dtype), lead, call.variant
                )
        return entry

    def run(x: StridedArray, y: StridedArray, out: Any, lead: int = 0, packs: bool = True) -> bool:
        places = x.buffer.ptr + size * x.offset, y.buffer.ptr + size * y.offset
        product = prepared(x, y, places, lead)
        if product is None:
            if not packs or lead:
                return False
            x, y = pack(compiler, x, index), pack(compiler, y, index)
            places = x.buffer.ptr + size * x.offset, y.buffer.ptr + size * y.offset
            product = prepared(x, y, places, lead)
            if product is None:
                return False
        stream = unit.stream()
        for block in (x.buffer, y.buffer, out):
            if block.stream is not stream:
                block.used_by(stream)
        with unit.current():
            product.queue(*places, out.ptr, stream)
        return True

    return run


def matmul_kernels(
    generated: Kernel, prepare_generated: Callable[[str], Prepare]
) -> dict[str, Sequence[Kernel]]:
    """Return the candidates of matrix products: of bytes, of floats by cuBLASLt, then the generated one."""
    otherwise = prepare_generated("matmul")
    in_bytes = kernels_matmul_8bit.eager(otherwise, prepare_generated("pad"), prepare_generated("cast"))
    return {
        "matmul": (
            Kernel(name="cublaslt_bytes", prepare=in_bytes, supports=kernels_matmul_8bit.supports),
            Kernel(name="cublaslt", prepare=eager(otherwise), out=into, supports=supports),
            generated,
        )
    }
