"""Large products of bytes by cuBLASLt, which adds them up in 32 bits; the lowest 8 are the product's.

The library takes rows of the left matrix and columns of the right one whose elements lie side by side, in
steps of 16 bytes. What lies otherwise is copied so, with zeros behind it. Signed and unsigned products are
the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Final

from tensorbus.backend_api import Call, StridedArray, pack
from tensorbus.backend_api import dtypes as dt

from .device import runtime

if TYPE_CHECKING:
    from .device import Unit

Prepare = Callable[[Call], Any]
STEP: Final = 16
LEAST: Final = 1 << 21
"""Multiplications from which on the library is asked: a generated kernel is one launch instead of a few."""
DEEPEST: Final = 1 << 16
"""Products of bytes that 32 bits add up without overflow."""
_BYTE, _WORD, _IN_WORDS = 3, 10, 72
"""The library's numbers for int8, int32, and sums in int32."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of ``count`` products, rows, terms and columns."""

    count: int
    rows: int
    terms: int
    columns: int


def sizes(shapes: Sequence[tuple[int, ...]]) -> Sizes | None:
    """Return the sizes of products that the library is asked for; None for others.

    >>> sizes([(64, 256), (256, 512)])
    Sizes(count=1, rows=64, terms=256, columns=512)
    >>> sizes([(8, 8), (8, 8)]) is None
    True
    """
    x, y = shapes
    if len(y) == 2:
        found = Sizes(1, prod(x[:-1]), x[-1], y[-1])
    elif x[:-2] == y[:-2]:
        found = Sizes(prod(x[:-2]), x[-2], x[-1], y[-1])
    else:
        return None
    work = found.count * found.rows * found.terms * found.columns
    return found if work >= LEAST and found.terms <= DEEPEST else None


def up(n: int) -> int:
    """Return the next multiple of the step.

    >>> up(1), up(16), up(17)
    (16, 16, 32)
    """
    return -(-n // STEP) * STEP


def eager(otherwise: Prepare, pad: Prepare, cast: Prepare) -> Prepare:
    """Return what prepares products: of bytes by the library, of others as ``otherwise`` does.

    ``pad`` and ``cast`` prepare calls of these ops.
    """

    def prepare(call: Call) -> Any:
        found = sizes(call.shapes) if call.dtypes[0] in (dt.int8, dt.uint8) and call.shapes else None
        if found is None or int(runtime().units[call.index].architecture) < 80:
            return otherwise(call)
        return _prepared(call, found, otherwise, pad, cast)

    return prepare


def _prepared(call: Call, n: Sizes, otherwise: Prepare, pad: Prepare, cast: Prepare) -> Any:
    unit, shape = runtime().units[call.index], call.out_shape or ()
    deep, wide = up(n.terms), up(n.columns)
    left = _Side(call, pad, (n.count, n.rows, n.terms), (n.rows, deep))
    right = _Side(call, pad, (n.count, n.columns, n.terms), (wide, deep))
    narrow = cast(
        Call(
            op="cast", dtypes=(dt.int32,), shapes=None, attrs={"dtype": dt.int8}, out_dtype=dt.int8,
            out_shape=None, index=call.index,
        )
    )  # fmt: skip
    found: list[Any] = []

    def run(x: StridedArray, y: StridedArray) -> StridedArray:
        if not found:
            with unit.current():
                made = _queue(unit, n, deep, wide)
            found.extend((made, otherwise(call) if made is None else None))
        queue, other = found[:2]
        if queue is None:
            without: StridedArray = other(x, y)
            return without
        a, b = left(x, turned=False), right(y, turned=True)
        sums, stream = unit.pool.allocate(4 * n.count * n.rows * wide), unit.stream()
        for block in (a.buffer, b.buffer):
            if block.stream is not stream:
                block.used_by(stream)
        with unit.current():
            queue(a.buffer.ptr + a.offset, b.buffer.ptr + b.offset, sums.ptr, stream)
        lies = (n.rows * wide, wide, 1)
        made = narrow(StridedArray(sums, (n.count, n.rows, n.columns), lies, 0, dt.int32))
        return StridedArray.contiguous(made.buffer, shape, call.out_dtype)

    return run


class _Side:
    """Brings an operand into the form that the library takes: ``shape``, padded to ``(rows, terms)``."""

    def __init__(
        self, call: Call, pad: Prepare, shape: tuple[int, int, int], padded: tuple[int, int]
    ) -> None:
        self._shape, self._index = shape, call.index
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

    def __call__(self, x: StridedArray, *, turned: bool) -> StridedArray:
        """Return the operand as packed, signed bytes."""
        compiler, shape = runtime().compiler, self._shape
        _, rows, terms = shape
        x = StridedArray(x.buffer, x.shape, x.strides, x.offset, dt.int8)
        if len(x.shape) > 2:
            x = pack(compiler, x, self._index)
            steps = (rows * terms, 1, rows) if turned else (rows * terms, terms, 1)
        else:
            down, along = x.strides
            steps = (0, along, down) if turned else (0, down, along)
        x = x.view(shape, steps)
        if not self._even:
            made: StridedArray = self._pad(x)
            return made
        if (x.buffer.ptr + x.offset) % STEP == 0 and x.is_contiguous:
            return x
        return pack(compiler, StridedArray(x.buffer, shape, x.strides, x.offset, dt.int8), self._index)


def _queue(unit: Unit, n: Sizes, deep: int, wide: int) -> Callable[[int, int, int, Any], None] | None:
    """Return what queues sums of products in int32; None where the library has no way for it."""
    from . import blas

    library = unit.library()
    description, wish = ctypes.c_void_p(), ctypes.c_void_p()
    library._check("cublasLtMatmulDescCreate", ctypes.byref(description), _IN_WORDS, _WORD)
    library._set("MatmulDesc", description, blas._TRANSA, ctypes.c_int32(1))
    layouts = [
        library._layout(kind, blas.Matrix(high, long, long, False, high * long), n.count)
        for kind, high, long in ((_BYTE, wide, deep), (_BYTE, n.rows, deep), (_WORD, n.rows, wide))
    ]
    library._check("cublasLtMatmulPreferenceCreate", ctypes.byref(wish))
    library._set("MatmulPreference", wish, blas._MOST_SPACE, ctypes.c_uint64(blas._SPACE))
    for k in range(4):
        library._set("MatmulPreference", wish, blas._ALIGNMENT + k, ctypes.c_uint32(STEP))
    found, count = blas._Found(), ctypes.c_int()
    code = library.lib.cublasLtMatmulAlgoGetHeuristic(
        library.handle, description, layouts[0], layouts[1], layouts[2], layouts[2], wish, 1,
        ctypes.byref(found), ctypes.byref(count),
    )  # fmt: skip
    library._check("cublasLtMatmulPreferenceDestroy", wish)
    if code or not count.value or found.state:
        return None
    one, none = ctypes.c_int32(1), ctypes.c_int32(0)

    def queue(x: int, y: int, out: int, stream: Any) -> None:
        space = library.space(stream)
        unit.failures.note("matmul")
        code = library._matmul(
            library.handle, description, ctypes.addressof(one), y, layouts[0], x, layouts[1],
            ctypes.addressof(none), out, layouts[2], out, layouts[2], ctypes.addressof(found), space,
            blas._SPACE, stream.ptr,
        )  # fmt: skip
        if code:
            raise unit.refused("cublasLtMatmul of bytes", code)

    return queue
