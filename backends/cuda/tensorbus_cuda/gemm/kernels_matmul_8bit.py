"""Large products of bytes by cuBLASLt: integers add up in 32 bits, of which 8 are kept, floats in float32.

The library takes rows of the left matrix and columns of the right one whose elements lie side by side, in
steps of 16 bytes. What lies otherwise is copied so, with zeros behind it. Signed and unsigned products are
the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import Call, StridedArray, pack
from tensorbus.backend_api import dtypes as dt

from ..device import runtime

if TYPE_CHECKING:
    from ..unit import Unit
    from .cublaslt import Arithmetic, Product

Prepare = Callable[[Call], Any]
STEP: Final = 16
MIN_WORK: Final = 1 << 21
"""Multiplications from which on the library is asked: a generated kernel is one launch instead of a few."""
DEEPEST: Final = 1 << 16
"""Products of bytes that 32 bits add up without overflow."""
INTEGERS: Final = (dt.int8, dt.uint8)
FLOATS: Final = (dt.float8_e4m3fn, dt.float8_e5m2)
OLDEST: Final = {True: 89, False: 80}
"""The compute capability from which on the library multiplies bytes, by whether they are floats."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of ``count`` products, rows, terms and columns."""

    count: int
    rows: int
    terms: int
    columns: int

    @property
    def work(self) -> int:
        """The number of multiplications."""
        return self.count * self.rows * self.terms * self.columns


def sizes(shapes: Sequence[tuple[int, ...]]) -> Sizes | None:
    """Return the sizes of products of one matrix on the right, or of one for each; None for others.

    >>> sizes([(4, 64, 256), (256, 512)])
    Sizes(count=1, rows=256, terms=256, columns=512)
    >>> sizes([(1, 8, 8), (4, 8, 8)]) is None
    True
    """
    x, y = shapes
    if len(y) == 2:
        return Sizes(1, prod(x[:-1]), x[-1], y[-1])
    return Sizes(prod(x[:-2]), x[-2], x[-1], y[-1]) if x[:-2] == y[:-2] else None


def up(n: int) -> int:
    """Return the next multiple of the step.

    >>> up(1), up(16), up(17)
    (16, 16, 32)
    """
    return -(-n // STEP) * STEP


def is_served(dtypes: Sequence[dt.DType], index: int) -> bool:
    """Return whether the library of a GPU multiplies bytes of these dtypes."""
    is_float = all(d in FLOATS for d in dtypes)
    if not is_float and not all(d in INTEGERS for d in dtypes):
        return False
    return int(runtime().units[index].architecture) >= OLDEST[is_float]


def supports(call: Call) -> bool | str:
    """Return whether the library is asked for a product of bytes, or why it is not."""
    if not is_served(call.dtypes, call.index):
        return "takes only bytes, floats of 8 bits on GPUs that multiply them"
    size = sizes(call.shapes) if call.shapes else None
    if size is None:
        return "takes one matrix on the right, or one for each on the left"
    if size.work < MIN_WORK:
        return f"takes products of {MIN_WORK:,} multiplications or more"
    if size.terms > DEEPEST and call.dtypes[0] in INTEGERS:
        return f"adds up {DEEPEST:,} integers at most"
    return True


def eager(otherwise: Prepare, pad: Prepare, cast: Prepare) -> Prepare:
    """Return what prepares large products of bytes; those that the library refuses as ``otherwise`` does.

    ``pad`` and ``cast`` prepare calls of these ops.
    """

    def prepare(call: Call) -> Any:
        assert call.shapes is not None
        size = sizes(call.shapes)
        assert size is not None, "the kernel supports no others"
        return _prepared(call, size, otherwise, pad, cast)

    return prepare


def _prepared(call: Call, n: Sizes, otherwise: Prepare, pad: Prepare, cast: Prepare) -> Any:
    from . import cublaslt

    unit, shape, dtype = runtime().units[call.index], call.out_shape or (), call.dtypes[0]
    sums, how = dt.int32, cublaslt.WORDS
    if dtype in FLOATS:
        sums, how = dt.float32, cublaslt.of_bytes(dtype, dtype, dt.float32)
    result_dtype = dtype if dtype in FLOATS else dt.int8
    left, right = sides(call, n, pad)
    narrow = cast(
        Call(
            op="cast", dtypes=(sums,), shapes=None, attrs={"dtype": result_dtype}, out_dtype=result_dtype,
            out_shape=None, index=call.index,
        )
    )  # fmt: skip
    wide, prepared = up(n.columns), list[Any]()

    def run(x: StridedArray, y: StridedArray) -> StridedArray:
        if not prepared:
            with unit.current():
                out = multiplier(unit, n, how)
            prepared.extend((out, otherwise(call) if out is None else None))
        product, other = prepared[:2]
        if product is None:
            without: StridedArray = other(x, y)
            return without
        room, stream = unit.pool.allocate(4 * n.count * n.rows * wide), unit.stream()
        with unit.current():
            product.queue(*_placed(left(x), right(y), stream), room.ptr, stream)
        strides = (n.rows * wide, wide, 1)
        out = narrow(StridedArray(room, (n.count, n.rows, n.columns), strides, 0, sums))
        return StridedArray.contiguous(out.buffer, shape, dtype)

    return run


def _placed(x: StridedArray, y: StridedArray, stream: Any) -> tuple[int, int]:
    for block in (x.buffer, y.buffer):
        if block.stream is not stream:
            block.used_by(stream)
    return x.buffer.ptr + x.offset, y.buffer.ptr + y.offset


def multiplier(unit: Unit, n: Sizes, how: Arithmetic, **ends: Any) -> Product | None:
    """Return the product of operands that ``sides`` prepared, with rows of the result at steps of 16.

    ``ends``: see ``Library.product``. None where the library has no algorithm for it.
    """
    from .cublaslt import Matrix

    deep, wide = up(n.terms), up(n.columns)
    x = Matrix(n.rows, deep, deep, False, n.rows * deep)
    y = Matrix(deep, wide, deep, True, deep * wide)
    return unit.library().product(x, y, n.count, how, (True, True), **ends)


def sides(call: Call, n: Sizes, pad: Prepare) -> tuple[Side, Side]:
    """Return what brings both operands into the form that the library takes."""
    deep, wide = up(n.terms), up(n.columns)
    return (
        Side(call, pad, (n.count, n.rows, n.terms), (n.rows, deep), transposed=False),
        Side(call, pad, (n.count, n.columns, n.terms), (wide, deep), transposed=True),
    )


class Side:
    """Brings an operand into the form that the library takes: ``shape``, padded to ``(rows, terms)``."""

    def __init__(
        self, call: Call, pad: Prepare, shape: tuple[int, int, int], padded: tuple[int, int], *,
        transposed: bool,
    ) -> None:  # fmt: skip
        self._shape, self._index, self._transposed = shape, call.index, transposed
        whole = (shape[0], *padded)
        self._even = whole == shape
        high = tuple(a - b for a, b in zip(whole, shape, strict=True))
        self._pad = pad(
            Call(
                op="pad", dtypes=(dt.int8,), shapes=(shape,),
                attrs={"low": (0, 0, 0), "high": high, "value": 0}, out_dtype=dt.int8,
                out_shape=whole, index=call.index,
            )
        )  # fmt: skip

    def __call__(self, x: StridedArray) -> StridedArray:
        """Return the operand as packed, signed bytes."""
        x, compiler = self._seen(x), runtime().compiler
        if not self._even:
            padded: StridedArray = self._pad(x)
            return padded
        return x if self._is_packed(x) else pack(compiler, x, self._index)

    def in_place(self, x: StridedArray) -> StridedArray | None:
        """Return the operand where it lies; None where it has to be copied."""
        if len(x.shape) > 2 and not x.is_contiguous:
            return None
        x = self._seen(x)
        return x if self._even and self._is_packed(x) else None

    def _seen(self, x: StridedArray) -> StridedArray:
        _, rows, terms = self._shape
        x = StridedArray(x.buffer, x.shape, x.strides, x.offset, dt.int8)
        if len(x.shape) > 2:
            x = x if x.is_contiguous else pack(runtime().compiler, x, self._index)
            steps = (rows * terms, 1, rows) if self._transposed else (rows * terms, terms, 1)
        else:
            down, along = x.strides
            steps = (0, along, down) if self._transposed else (0, down, along)
        return x.view(self._shape, steps)

    def _is_packed(self, x: StridedArray) -> bool:
        return (x.buffer.ptr + x.offset) % STEP == 0 and bool(x.is_contiguous)
